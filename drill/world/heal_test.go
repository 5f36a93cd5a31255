package world

import (
	"reflect"
	"testing"
	"time"

	"github.com/llm-node-exporter/llm-node-exporter/drill"
	"github.com/llm-node-exporter/llm-node-exporter/metrics"
)

// After any fault, a healed world matches the description of its fleet: each setting that a fault may change is
// restored, and no user suffers.
func TestHeal(t *testing.T) {
	p := drill.NewProfile("m")
	f := Fleet{Profile: p, Runtimes: []metrics.Runtime{metrics.VLLM}, Replicas: 2}
	w, well := New(f, time.Unix(0, 0).UTC(), 1), New(f, time.Unix(0, 0).UTC(), 1)
	w.Advance(time.Minute)
	settings := func(v reflect.Value, do func(name string, field reflect.Value)) {
		for i := range v.NumField() {
			if field := v.Field(i); field.CanSet() {
				switch field.Kind() {
				case reflect.Bool, reflect.Int, reflect.Float64, reflect.Pointer:
					do(v.Type().Field(i).Name, field)
				}
			}
		}
	}
	parts := func(w *World) map[string]reflect.Value {
		return map[string]reflect.Value{
			"world": reflect.ValueOf(w).Elem(), "replica": reflect.ValueOf(w.Replicas[0]).Elem(),
			"GPU":    reflect.ValueOf(w.Replicas[0].GPU).Elem(),
			"engine": reflect.ValueOf(w.Replicas[0].Engine).Elem(), "load": reflect.ValueOf(&w.Traffic.Load).Elem(),
		}
	}
	counted := map[string]bool{"Index": true, "ECC": true, "Recoveries": true} // not a state
	for _, v := range parts(w) {
		settings(v, func(name string, field reflect.Value) {
			switch {
			case counted[name]:
			case field.Kind() == reflect.Bool:
				field.SetBool(true)
			case field.Kind() == reflect.Int:
				field.SetInt(1)
			case field.Kind() == reflect.Float64:
				field.SetFloat(0.5)
			case name == "Throttle":
				w.Replicas[0].GPU.Throttle = &Throttle{Reason: "hw_slowdown", Clock: 0.25}
			}
		})
	}
	w.Heal(time.Second)
	for part, v := range parts(w) {
		want := parts(well)[part]
		settings(v, func(name string, field reflect.Value) {
			// the engine loads; the GPU sets the clock
			if field.Kind() == reflect.Pointer && name != "Throttle" || counted[name] || name == "Down" || name == "Clock" {
				return
			}
			if is := want.FieldByName(name); !reflect.DeepEqual(field.Interface(), is.Interface()) {
				t.Errorf("%s: %s is %v, not %v", part, name, field, is)
			}
		})
	}
	w.Advance(3 * time.Minute)
	if events, bad := w.Suffered("availability", 2*time.Minute, 3*time.Minute); events == 0 || bad > events/20 || w.Replicas[0].Page() == nil {
		t.Errorf("%g of %g requests fail after the world was healed", bad, events)
	}
}
