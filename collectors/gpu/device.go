//go:build linux && cgo

package gpu

import (
	"fmt"
	"log/slog"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/llm-node-exporter/llm-node-exporter/metrics"
)

// restFor is the pause before the exporter repeats a call that the driver has refused permanently. The call may work
// again after a change of mode, such as MIG.
const restFor = 10 * time.Minute

// nvmlDevice reads one GPU through NVML.
type nvmlDevice struct {
	lib    *library
	index  int
	handle nvml.Device
	isOpen bool
	info   []string // labels of llm_gpu_info after the GPU's own

	now    time.Time      // of the current cycle
	last   time.Time      // of the last complete cycle
	driver *time.Duration // counts the time in the driver
	fatal  error          // error that broke the GPU or the library; no more calls follow in this cycle

	fields   []field
	batch    []nvml.FieldValue
	asked    []*field
	values   map[fieldID]nvml.FieldValue // the last values read
	calls    []call
	rest     map[string]time.Time // end of the time in which either skips its first way
	features map[string]*feature
	distance map[distanceKey]*odometer

	nvlinks   nvlinks
	pcieSpeed float64 // bytes per second that the PCIe link can transfer in one direction

	clockEvents clockEventState
	limits      map[string]float64 // for GPUs without T.Limit, in degrees
	gpm         gpmState
	mig         []*migInstance
	utilization utilization
	events      nvml.EventSet
}

func newDevice(l *library, index int) *nvmlDevice {
	return &nvmlDevice{
		lib:      l,
		index:    index,
		values:   make(map[fieldID]nvml.FieldValue),
		rest:     make(map[string]time.Time),
		features: make(map[string]*feature),
		distance: make(map[distanceKey]*odometer),
		calls:    newCalls(),
		driver:   new(time.Duration),

		pcieSpeed: math.Inf(1),
	}
}

// feature records whether the driver offers a feature. If a feature has several calls or fields, any of them is
// sufficient.
type feature struct {
	cycle     time.Time
	supported bool
	reason    string
}

// Read implements device.
func (d *nvmlDevice) Read(now time.Time, s *sheet) error {
	d.now, d.fatal = now, nil
	if !d.isOpen {
		if err := d.open(s); err != nil {
			return err
		}
	}
	d.begin(s, fast)
	if s.due >= slow {
		d.settle(s)
	}
	d.alive(s)
	d.readFields(s)
	for i := range d.calls {
		c := &d.calls[i]
		if c.tier > s.due || now.Before(c.restUntil) || d.fatal != nil {
			continue
		}
		d.begin(s, c.tier)
		before := *d.driver
		err := c.read(d, s)
		c.took(s.driver[c.tier] - before)
		if reachOf(err) == forGood {
			c.restUntil = now.Add(restFor)
		}
		if c.feature != "" {
			d.note(c.feature, err)
		}
	}
	if err := d.fatal; err != nil {
		d.Close() // the next cycle opens the GPU again
		return err
	}
	if s.due >= slow {
		d.begin(s, slow)
		s.add(metrics.GPUInfo, 1, d.info...)
	}
	d.begin(s, fast)
	for name, f := range d.features {
		s.add(metrics.GPUFeatureSupported, metrics.Bool(f.supported), name, f.reason)
	}
	for f, n := range s.dropped {
		s.add(metrics.GPUReadingsDropped, n, f.Name, "implausible")
	}
	d.last = now
	return nil
}

// settle decides how often each reading is made, from the durations of earlier readings.
func (d *nvmlDevice) settle(s *sheet) {
	for i := range d.fields {
		s.settled = d.fields[i].settle(&d.lib.options) || s.settled
	}
	for i := range d.calls {
		s.settled = d.calls[i].settle(&d.lib.options) || s.settled
	}
	d.gpm.settle(d, s)
}

// begin starts the readings of a tier. The time to open a GPU may be seconds, and counts for no tier.
func (d *nvmlDevice) begin(s *sheet, t tier) { s.row, d.driver = t, &s.driver[t] }

// alive ends the cycle unless the GPU reports its clocks. A GPU without clocks must report its identity. Some dead GPUs
// answer every call with a code that would be harmless for a single call. This check defines whether a GPU is up.
func (d *nvmlDevice) alive(s *sheet) {
	_, err := either(d, "clocks",
		func() (string, error) {
			err := readClocks(d, s)
			d.note("clock", err)
			return "", err
		},
		func() (string, error) { return ask(d, "nvmlDeviceGetUUID", d.handle.GetUUID) })
	if d.fatal == nil {
		d.fatal = err
	}
}

// Close implements device.
func (d *nvmlDevice) Close() {
	d.gpm.free(d.lib)
	for _, m := range d.mig {
		freeWindows(d.lib, &m.gpm)
	}
	if d.events != nil {
		_ = d.lib.call("nvmlEventSetFree", d.events.Free)
	}
	fresh := newDevice(d.lib, d.index)
	fresh.nvlinks = d.nvlinks
	*d = *fresh
}

// call makes a driver call for the GPU, unless the GPU is known to be broken.
func (d *nvmlDevice) call(name string, call func() nvml.Return) error {
	if d.fatal != nil {
		return d.fatal
	}
	began := time.Now()
	err := d.lib.call(name, call)
	if name != callWait { // the other call waits on purpose
		*d.driver += time.Since(began)
	}
	d.condemn(err)
	return err
}

// condemn ends the cycle if an error means that the GPU or the library is broken.
func (d *nvmlDevice) condemn(err error) {
	if reachOf(err) >= wholeGPU && d.fatal == nil {
		d.fatal = err
	}
}

// ask makes a driver call with one result.
func ask[T any](d *nvmlDevice, name string, get func() (T, nvml.Return)) (v T, err error) {
	err = d.call(name, func() (ret nvml.Return) { v, ret = get(); return ret })
	return v, err
}

// either tries the first of two ways to read a value. If the driver refuses this way permanently, either tries the
// second way. It remembers the refusal under the key, and skips the first way for a while.
func either[T any](d *nvmlDevice, key string, first, second func() (T, error)) (T, error) {
	if d.now.Before(d.rest[key]) {
		return second()
	}
	v, err := first()
	if reachOf(err) != forGood {
		return v, err
	}
	d.rest[key] = d.now.Add(restFor)
	return second()
}

// note records whether the driver offers a feature.
func (d *nvmlDevice) note(name string, err error) {
	f := findOrMake(d.features, name)
	if f.cycle.Equal(d.now) && f.supported {
		return
	}
	*f = feature{d.now, err == nil, reasonFor(err)}
	if f.reason == codes[codeNoPermission].reason {
		if _, told := d.lib.warned.LoadOrStore(name, true); !told {
			d.lib.options.Logger.Warn("no permission to read a feature of the GPUs; its series are absent", "feature", name, "err", err)
		}
	}
}

// open finds the GPU and reads its identity.
func (d *nvmlDevice) open(s *sheet) error {
	var err error
	d.handle, err = ask(d, callHandle, func() (nvml.Device, nvml.Return) { return d.lib.api.DeviceGetHandleByIndex(d.index) })
	if err != nil {
		return err
	}
	id := Identity{Index: strconv.Itoa(d.index)}
	if id.UUID, err = ask(d, "nvmlDeviceGetUUID", d.handle.GetUUID); err != nil {
		return err
	}
	if pci, err := ask(d, callPCIInfo, d.handle.GetPciInfo); err == nil {
		id.PCI, _ = CanonicalPCI(cString(pci.BusId[:]))
	}
	minor, err := ask(d, "nvmlDeviceGetMinorNumber", d.handle.GetMinorNumber)
	id.Minor = known(strconv.Itoa(minor), err)
	s.setIdentity(id)

	name := known(ask(d, "nvmlDeviceGetName", d.handle.GetName))
	serial := known(ask(d, "nvmlDeviceGetSerial", d.handle.GetSerial))
	arch, err := ask(d, "nvmlDeviceGetArchitecture", d.handle.GetArchitecture)
	architecture := known(architectures[arch], err)
	var major, sub int
	err = d.call("nvmlDeviceGetCudaComputeCapability", func() (ret nvml.Return) {
		major, sub, ret = d.handle.GetCudaComputeCapability()
		return ret
	})
	capability := known(fmt.Sprintf("%d.%d", major, sub), err)
	vbios := known(ask(d, "nvmlDeviceGetVbiosVersion", d.handle.GetVbiosVersion))
	if d.fatal != nil {
		return d.fatal
	}
	d.info = []string{name, id.PCI, id.Minor, serial, architecture, capability, vbios}

	links, err := d.linkCount(nvml.FI_DEV_NVLINK_LINK_COUNT, nvml.NVLINK_MAX_LINKS)
	d.note("nvlink", err)
	c2cLinks, _ := d.linkCount(nvml.FI_DEV_C2C_LINK_COUNT, maxC2CLinks)
	if d.fatal != nil {
		return d.fatal
	}
	d.fields = newFields(links, c2cLinks)
	d.gpm.open(d)
	d.isOpen = d.fatal == nil
	d.lib.options.Logger.Debug("GPU found", slog.String("uuid", id.UUID), slog.String("name", name), slog.Int("nvlinks", links))
	return d.fatal
}

var architectures = map[nvml.DeviceArchitecture]string{
	nvml.DEVICE_ARCH_KEPLER:    "kepler",
	nvml.DEVICE_ARCH_MAXWELL:   "maxwell",
	nvml.DEVICE_ARCH_PASCAL:    "pascal",
	nvml.DEVICE_ARCH_VOLTA:     "volta",
	nvml.DEVICE_ARCH_TURING:    "turing",
	nvml.DEVICE_ARCH_AMPERE:    "ampere",
	nvml.DEVICE_ARCH_ADA:       "ada",
	nvml.DEVICE_ARCH_HOPPER:    "hopper",
	nvml.DEVICE_ARCH_BLACKWELL: "blackwell",
	nvml.DEVICE_ARCH_RUBIN:     "rubin",
}

func cString(b []int8) string {
	var s strings.Builder
	for _, c := range b {
		if c == 0 {
			break
		}
		s.WriteByte(byte(c))
	}
	return s.String()
}
