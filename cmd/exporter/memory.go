package main

import (
	"bufio"
	"fmt"
	"os"
	"strings"
	"syscall"
)

// unmapBinary removes the exporter's binary (code, tables and texts) from its resident memory. Most of the binary is
// needed only at start. The kernel maps needed parts again from its cache, one memory page at a time.
func unmapBinary() error {
	binary, err := os.Readlink("/proc/self/exe")
	if err != nil {
		return err
	}
	f, err := os.Open("/proc/self/smaps")
	if err != nil {
		return err
	}
	defer f.Close()
	var start, end uintptr // bounds of the mapping that the lines describe; zero if the mapping must stay
	for lines := bufio.NewScanner(f); lines.Scan(); {
		line := lines.Text()
		if fields := strings.Fields(line); strings.Contains(fields[0], "-") {
			start, end = 0, 0
			if strings.HasSuffix(line, " "+binary) && fields[1][1] == '-' { // not writable
				_, err = fmt.Sscanf(fields[0], "%x-%x", &start, &end)
			}
		} else if end > 0 && fields[0] == "Anonymous:" && fields[1] == "0" { // the loader did not write to the mapping
			err = unmap(start, end-start)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// unmap drops the memory pages of a mapping. With huge pages, each needed page would bring back 2 MiB, so unmap
// switches huge pages off. A kernel without huge pages returns an error, which does not matter.
func unmap(start, size uintptr) error {
	_, _, _ = syscall.Syscall(syscall.SYS_MADVISE, start, size, syscall.MADV_NOHUGEPAGE)
	if _, _, failed := syscall.Syscall(syscall.SYS_MADVISE, start, size, syscall.MADV_DONTNEED); failed != 0 {
		return failed
	}
	return nil
}
