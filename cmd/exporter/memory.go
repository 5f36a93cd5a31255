package main

import (
	"bufio"
	"fmt"
	"os"
	"strings"
	"syscall"
)

// unmapBinary takes what the exporter's binary holds, code, tables and texts, out of its resident memory. Most of it is
// needed only at start; what is needed again, the kernel maps again, page by page, from its cache.
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
	var start, end uintptr // of the mapping that the lines describe; zero if it is to stay
	for lines := bufio.NewScanner(f); lines.Scan(); {
		line := lines.Text()
		if fields := strings.Fields(line); strings.Contains(fields[0], "-") {
			start, end = 0, 0
			if strings.HasSuffix(line, " "+binary) && fields[1][1] == '-' { // not writable
				_, err = fmt.Sscanf(fields[0], "%x-%x", &start, &end)
			}
		} else if end > 0 && fields[0] == "Anonymous:" && fields[1] == "0" { // and the loader did not write to it either
			err = unmap(start, end-start)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// unmap drops the pages of a mapping. Huge ones would bring back 2 MiB for each page that is needed; a kernel without
// them refuses that advice.
func unmap(start, size uintptr) error {
	_, _, _ = syscall.Syscall(syscall.SYS_MADVISE, start, size, syscall.MADV_NOHUGEPAGE)
	if _, _, failed := syscall.Syscall(syscall.SYS_MADVISE, start, size, syscall.MADV_DONTNEED); failed != 0 {
		return failed
	}
	return nil
}
