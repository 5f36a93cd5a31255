package gpu

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// TestBusGPUs checks that NVSwitches, other vendors and GPUs that belong to a virtual machine are not expected.
func TestBusGPUs(t *testing.T) {
	root := busWith(t, 8)
	for i, driver := range []string{
		"vfio-pci", "nvidia", "nvgrace_gpu_vfio_pci", "nvgrace-gpu-vfio-pci", "pci-stub", "xen-pciback",
		"nouveau",
	} {
		bind(t, root, i+1, driver)
	}
	found, passed, err := busGPUs(root)
	if want := []string{"0000:10:00.0", "0000:12:00.0", "0000:17:00.0"}; err != nil || !slices.Equal(found, want) {
		t.Errorf("got %v %v, want %v", found, err, want)
	}
	if want := []string{"0000:11:00.0", "0000:13:00.0", "0000:14:00.0", "0000:15:00.0", "0000:16:00.0"}; !slices.Equal(passed, want) {
		t.Errorf("passed through: got %v, want %v", passed, want)
	}
	if _, _, err := busGPUs(filepath.Join(root, "nowhere")); err == nil {
		t.Error("a sysfs without a PCI bus is not a node without GPUs")
	}
}

// TestBusChanges checks that a GPU that vanishes stays expected, and a GPU that is handed to a virtual machine does
// not.
func TestBusChanges(t *testing.T) {
	root := busWith(t, 3)
	c := New(Options{SysFS: root})
	c.lookAtBus()
	bind(t, root, 1, "vfio-pci")
	if err := os.RemoveAll(filepath.Join(root, "bus/pci/devices/0000:12:00.0")); err != nil {
		t.Fatal(err)
	}
	c.lookAtBus()
	if want := []string{"0000:10:00.0", "0000:12:00.0"}; !slices.Equal(c.bus, want) {
		t.Errorf("got %v, want %v", c.bus, want)
	}
}

// bind gives a GPU of busWith a driver.
func bind(t *testing.T, root string, gpu int, driver string) {
	t.Helper()
	dir := filepath.Join(root, "bus/pci/drivers", driver)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(dir, filepath.Join(root, "bus/pci/devices", fmt.Sprintf("0000:%02x:00.0", 0x10+gpu), "driver")); err != nil {
		t.Fatal(err)
	}
}

// busWith makes a sysfs with GPUs where newNode puts them, between other devices.
func busWith(t testing.TB, gpus int) string {
	t.Helper()
	root := t.TempDir()
	add := func(address, vendor, class string) {
		dir := filepath.Join(root, "bus/pci/devices", address)
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		for file, content := range map[string]string{"vendor": vendor, "class": class} {
			if err := os.WriteFile(filepath.Join(dir, file), []byte(content+"\n"), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	add("0000:00:00.0", "0x8086", "0x060000")
	add("0000:05:00.0", "0x10de", "0x068000") // an NVSwitch is not a GPU
	for i := range gpus {
		add(fmt.Sprintf("0000:%02x:00.0", 0x10+i), "0x10de", "0x030200")
	}
	return root
}
