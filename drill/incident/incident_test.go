package incident

import (
	"testing"
)

func TestIncidents(t *testing.T) {
	for _, in := range Incidents() {
		t.Run(in.Name, func(t *testing.T) {
			s, err := Run(in, Rules(), 1)
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("%+v", s)
			for _, p := range s.Problems {
				t.Error(p)
			}
		})
	}
}
