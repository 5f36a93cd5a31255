package main

import (
	"syscall"

	"github.com/prometheus/procfs"
)

// unmapCode takes the exporter's code out of its resident memory. Most of it runs only at start; what runs again, the
// kernel maps again, page by page, from its cache.
func unmapCode() error {
	self, err := procfs.Self()
	if err != nil {
		return err
	}
	binary, err := self.Executable()
	if err != nil {
		return err
	}
	maps, err := self.ProcMaps()
	if err != nil {
		return err
	}
	for _, m := range maps {
		if m.Perms.Execute && m.Pathname == binary {
			if _, _, failed := syscall.Syscall(syscall.SYS_MADVISE, m.StartAddr, m.EndAddr-m.StartAddr, syscall.MADV_DONTNEED); failed != 0 {
				return failed
			}
		}
	}
	return nil
}
