//go:build linux && cgo

package gpu

import (
	"errors"
	"strconv"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

const (
	maxEventsPerCycle = 4096
	eventWait         = 1 // in ms; reads only events that are already waiting
)

// readXIDEvents reads the XIDs that arrived since the last cycle. Every GPU has its own event set, so a hanging GPU
// does not delay the events of other GPUs.
func readXIDEvents(d *nvmlDevice, s *sheet) error {
	if d.events == nil {
		if err := d.registerXIDs(); err != nil {
			return err
		}
	}
	for range maxEventsPerCycle {
		event, err := ask(d, callWait, func() (nvml.EventData, nvml.Return) { return d.events.Wait(eventWait) })
		var failed *callError
		switch {
		case errors.As(err, &failed) && failed.code == codeTimeout:
			return nil // no more events
		case err != nil:
			_ = d.lib.call("nvmlEventSetFree", d.events.Free)
			d.events = nil
			return err
		case event.EventType == nvml.EventTypeXidCriticalError && isXIDCode(int(event.EventData)):
			x := xid{pci: s.identity.PCI, code: int(event.EventData)}
			if event.GpuInstanceId != noInstance {
				x.instance = strconv.Itoa(int(event.GpuInstanceId))
			}
			s.xids = append(s.xids, x)
		}
	}
	return nil
}

func (d *nvmlDevice) registerXIDs() error {
	supported, err := ask(d, "nvmlDeviceGetSupportedEventTypes", d.handle.GetSupportedEventTypes)
	if err == nil && supported&nvml.EventTypeXidCriticalError == 0 {
		err = &callError{"nvmlDeviceGetSupportedEventTypes", codeNotSupported}
	}
	if err != nil {
		return err
	}
	set, err := ask(d, "nvmlEventSetCreate", d.lib.api.EventSetCreate)
	if err != nil {
		return err
	}
	err = d.call("nvmlDeviceRegisterEvents", func() nvml.Return {
		return d.handle.RegisterEvents(nvml.EventTypeXidCriticalError, set)
	})
	if err != nil {
		_ = d.lib.call("nvmlEventSetFree", set.Free)
		return err
	}
	d.events = set
	return nil
}
