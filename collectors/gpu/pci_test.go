package gpu

import (
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
