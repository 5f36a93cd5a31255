//go:build linux && cgo

package gpu

import (
	"strconv"
	"strings"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/llm-node-exporter/llm-node-exporter/metrics"
)

// migInstance holds a MIG GPU instance.
type migInstance struct {
	id       int
	instance string // id as a label
	shape    string // shape of its devices; an instance with another shape is a new instance with the same id
	gpm      [slow + 1]gpmWindow
}

// readMIG lists the MIG devices. It looks up their handles each time, because a handle becomes stale when its instance
// is destroyed.
func readMIG(d *nvmlDevice, s *sheet) error {
	var current, pending int
	err := d.call("nvmlDeviceGetMigMode", func() (ret nvml.Return) {
		current, pending, ret = d.handle.GetMigMode()
		return ret
	})
	if err != nil {
		return err
	}
	s.add(metrics.GPUMIGMode, float64(current), "current")
	s.add(metrics.GPUMIGMode, float64(pending), "pending")
	found := make(map[int]*migInstance)
	var listed []Instance
	if current == nvml.DEVICE_MIG_ENABLE {
		if listed, err = d.listMIG(s, found); err != nil {
			return err
		}
	}
	s.instances = listed
	d.keepMIG(found)
	return nil
}

// listMIG exports the MIG devices and records their GPU instances.
func (d *nvmlDevice) listMIG(s *sheet, found map[int]*migInstance) (listed []Instance, err error) {
	slots, err := ask(d, "nvmlDeviceGetMaxMigDeviceCount", d.handle.GetMaxMigDeviceCount)
	if err != nil {
		return nil, err
	}
	for slot := range slots {
		mig, err := ask(d, "nvmlDeviceGetMigDeviceHandleByIndex", func() (nvml.Device, nvml.Return) {
			return d.handle.GetMigDeviceHandleByIndex(slot)
		})
		if err != nil {
			continue // a slot without a device
		}
		gi, err := ask(d, "nvmlDeviceGetGpuInstanceId", mig.GetGpuInstanceId)
		if err != nil {
			return nil, err
		}
		instance := strconv.Itoa(gi)
		uuid, err := ask(d, "nvmlDeviceGetUUID", mig.GetUUID)
		if err != nil {
			return nil, err
		}
		listed = append(listed, Instance{s.identity, instance, uuid})
		computeInstance := ""
		if ci, err := ask(d, "nvmlDeviceGetComputeInstanceId", mig.GetComputeInstanceId); err == nil {
			computeInstance = strconv.Itoa(ci)
		}
		name, _ := ask(d, "nvmlDeviceGetName", mig.GetName)
		_, profile, _ := strings.Cut(name, " MIG ")
		s.add(metrics.GPUMIGInfo, 1, instance, computeInstance, uuid, profile)

		m, known := found[gi]
		if !known {
			m = &migInstance{id: gi, instance: instance}
			found[gi] = m
			// Compute instances share the memory of their GPU instance, so it is exported once.
			d.note("mig_memory", d.readMemory(s, mig, instance))
		}
		m.shape += uuid + " "
	}
	return listed, nil
}

// keepMIG replaces the instances with the ones found, but keeps the samples of unchanged instances.
func (d *nvmlDevice) keepMIG(found map[int]*migInstance) {
	for _, old := range d.mig {
		if m := found[old.id]; m != nil && m.shape == old.shape {
			m.gpm = old.gpm
		} else {
			freeWindows(d.lib, &old.gpm)
		}
	}
	d.mig = d.mig[:0]
	for _, m := range found {
		d.mig = append(d.mig, m)
	}
}
