package gpu

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// TestBusGPUs: NVSwitches, other vendors and GPUs that belong to a virtual machine are not expected.
func TestBusGPUs(t *testing.T) {
	root := busWith(t, 3)
	vfio := filepath.Join(root, "bus/pci/drivers/vfio-pci")
	if err := os.MkdirAll(vfio, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(vfio, filepath.Join(root, "bus/pci/devices/0000:11:00.0/driver")); err != nil {
		t.Fatal(err)
	}
	got, err := busGPUs(root)
	if want := []string{"0000:10:00.0", "0000:12:00.0"}; err != nil || !slices.Equal(got, want) {
		t.Errorf("got %v %v, want %v", got, err, want)
	}
	if _, err := busGPUs(filepath.Join(root, "nowhere")); err == nil {
		t.Error("a sysfs without a PCI bus is not a node without GPUs")
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
	add("0000:05:00.0", "0x10de", "0x068000") // an NVSwitch is no GPU
	for i := range gpus {
		add(fmt.Sprintf("0000:%02x:00.0", 0x10+i), "0x10de", "0x030200")
	}
	return root
}
