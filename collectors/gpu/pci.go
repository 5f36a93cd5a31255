package gpu

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// busInterval is how often the PCI bus is looked at.
const busInterval = 30 * time.Second

// watchBus keeps the list of GPUs that there should be. A GPU that vanishes from the bus stays on
// the list: that it is gone is the news.
func (c *Collector) watchBus(ctx context.Context) {
	tick := time.NewTicker(busInterval)
	defer tick.Stop()
	for {
		found, err := busGPUs(c.options.SysFS)
		c.mu.Lock()
		for _, address := range found {
			if !slices.Contains(c.bus, address) {
				c.bus = append(slices.Clone(c.bus), address)
			}
		}
		if c.bus == nil && err == nil {
			c.bus = []string{} // we know that there is none
		}
		c.mu.Unlock()
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// busGPUs lists the PCI addresses of NVIDIA GPUs: vendor 10de, class 0300 (VGA) or 0302 (3D). GPUs
// that are handed to virtual machines are not ours to expect.
func busGPUs(sysfs string) ([]string, error) {
	dir := filepath.Join(sysfs, "bus/pci/devices")
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("listing the PCI bus: %w", err)
	}
	var found []string
	for _, e := range entries {
		device := filepath.Join(dir, e.Name())
		vendor, class := readLine(device, "vendor"), readLine(device, "class")
		if vendor != "0x10de" || !strings.HasPrefix(class, "0x0300") && !strings.HasPrefix(class, "0x0302") {
			continue
		}
		if driver, err := os.Readlink(filepath.Join(device, "driver")); err == nil {
			if name := filepath.Base(driver); name == "vfio-pci" || name == "pci-stub" {
				continue
			}
		}
		found = append(found, e.Name())
	}
	return found, nil
}

func readLine(dir, file string) string {
	b, _ := os.ReadFile(filepath.Join(dir, file))
	return strings.TrimSpace(string(b))
}

// canonicalPCI turns the ways in which NVML and the kernel log write a PCI address into that of
// sysfs: "00000000:3B:00.0", "PCI:0000:3b:00" and "0000:3b:00.0" all are 0000:3b:00.0.
func canonicalPCI(s string) (string, bool) {
	s, function, hasFunction := strings.Cut(strings.TrimPrefix(s, "PCI:"), ".")
	parts := strings.Split(s, ":")
	if len(parts) != 3 || hasFunction && !isHex(function, 1) ||
		!isHex(parts[0], 8) || !isHex(parts[1], 2) || !isHex(parts[2], 2) {
		return "", false
	}
	if !hasFunction {
		function = "0"
	}
	domain := fmt.Sprintf("%04s", strings.TrimLeft(parts[0], "0"))
	return strings.ToLower(fmt.Sprintf("%s:%02s:%02s.%s", strings.ReplaceAll(domain, " ", "0"),
		parts[1], parts[2], function)), true
}

// isHex reports whether s is a hexadecimal number of one to max digits.
func isHex(s string, max int) bool {
	return s != "" && len(s) <= max && strings.Trim(s, "0123456789abcdefABCDEF") == ""
}
