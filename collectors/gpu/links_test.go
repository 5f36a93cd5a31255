//go:build linux && cgo

package gpu

import (
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

// TestLinksThatLeadNowhere checks that, for an NVLink that is down and has never been up, only the state is read. For a
// link that was up, or that has not been read yet, all fields are read.
func TestLinksThatLeadNowhere(t *testing.T) {
	d := newDevice(&library{}, 0)
	for link, state := range map[uint32]byte{3: nvml.NVLINK_STATE_INACTIVE, 4: nvml.NVLINK_STATE_ACTIVE, 5: nvml.NVLINK_STATE_INACTIVE} {
		d.values[fieldID{nvml.FI_DEV_NVLINK_GET_STATE, link}] = nvml.FieldValue{
			ValueType: uint32(nvml.VALUE_TYPE_UNSIGNED_INT),
			Value:     [8]byte{state},
		}
	}
	d.nvlinks.led[5] = true
	for link, want := range map[uint32]bool{2: false, 3: true, 4: false, 5: false} {
		if d.leadsNowhere(link) != want {
			t.Errorf("link %d leads nowhere: %t", link, !want)
		}
	}
	perLink, states := 0, 0
	for _, f := range newFields(18, 0) {
		switch {
		case f.nvlink:
			perLink++
		case f.id == nvml.FI_DEV_NVLINK_GET_STATE:
			states++
		}
	}
	if states != 18 || perLink < 18*25 {
		t.Errorf("%d fields of %d links", perLink, states)
	}
}
