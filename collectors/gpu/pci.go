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

// busInterval is how often the PCI bus is scanned.
const busInterval = 30 * time.Second

// watchBus updates the list of expected GPUs. A GPU that vanishes from the bus stays on the list, because its absence
// is a fault.
func (c *Collector) watchBus(ctx context.Context) {
	tick := time.NewTicker(busInterval)
	defer tick.Stop()
	for {
		c.lookAtManager()
		c.lookAtBus()
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

func (c *Collector) lookAtManager() {
	c.mu.Lock()
	m := c.manager
	c.mu.Unlock()
	if err := m.look(c.options.ProcFS, time.Now()); err != nil {
		c.options.Logger.Debug("fabric manager unknown", "err", err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.manager = m
}

// lookAtBus updates the list. A GPU that was passed to a virtual machine is no longer expected.
func (c *Collector) lookAtBus() {
	found, passed, err := busGPUs(c.options.SysFS)
	if err != nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	bus := []string{} // not nil, because even an empty list is known
	for _, address := range slices.Concat(c.bus, found) {
		if !slices.Contains(bus, address) && !slices.Contains(passed, address) {
			bus = append(bus, address)
		}
	}
	c.bus = bus
}

// busGPUs lists the PCI addresses of NVIDIA GPUs: vendor 10de, class 0300 (VGA) or 0302 (3D). GPUs passed through
// to virtual machines are returned separately.
func busGPUs(sysfs string) (found, passed []string, err error) {
	dir := filepath.Join(sysfs, "bus/pci/devices")
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, nil, fmt.Errorf("listing the PCI bus: %w", err)
	}
	for _, e := range entries {
		device := filepath.Join(dir, e.Name())
		vendor, class := readLine(device, "vendor"), readLine(device, "class")
		if vendor != "0x10de" || !strings.HasPrefix(class, "0x0300") && !strings.HasPrefix(class, "0x0302") {
			continue
		}
		if driver, err := os.Readlink(filepath.Join(device, "driver")); err == nil && passesThrough(filepath.Base(driver)) {
			passed = append(passed, e.Name())
		} else {
			found = append(found, e.Name())
		}
	}
	return found, passed, nil
}

// passesThrough reports whether a driver only reserves a device for a virtual machine. These drivers are vfio-pci and
// its variants, such as nvgrace_gpu_vfio_pci, the stub, and Xen's driver.
func passesThrough(driver string) bool {
	return strings.Contains(driver, "vfio") || driver == "pci-stub" || strings.HasSuffix(driver, "pciback")
}

func readLine(dir, file string) string {
	b, _ := os.ReadFile(filepath.Join(dir, file))
	return strings.TrimSpace(string(b))
}

// CanonicalPCI converts a PCI address from NVML or the kernel log to the form of sysfs. "00000000:3B:00.0",
// "PCI:0000:3b:00" and "0000:3b:00.0" all become 0000:3b:00.0.
func CanonicalPCI(s string) (string, bool) {
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

// isHex reports whether s is a hexadecimal number with at most this number of digits.
func isHex(s string, most int) bool {
	return s != "" && len(s) <= most && strings.Trim(s, "0123456789abcdefABCDEF") == ""
}
