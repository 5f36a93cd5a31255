//go:build linux && cgo

package gpu

import (
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/llm-node-exporter/llm-node-exporter/metrics"
)

// odometer continues to count when a driver counter restarts, or when a counter of 32 bits wraps.
type odometer struct {
	last  uint64
	total float64
	began bool
	wide  bool // the counter has exceeded 32 bits
}

type distanceKey struct {
	family *metrics.Family
	scope  uint32
}

// advance takes a reading. If the counter has fallen, it was reset.
func (o *odometer) advance(raw uint64) {
	if !o.began || raw < o.last {
		o.last = 0
	}
	o.total += float64(raw - o.last)
	o.last, o.began = raw, true
}

// advanceNarrow takes a reading of a 32-bit counter. speed is the link's speed in bytes per second, from which it
// follows whether the counter may have wrapped since the last reading. advanceNarrow reports whether the reading shows
// how far the counter moved. After a late reading, the count only continues from the new value. If the counter fell
// farther than the link could transfer, it was reset.
func (o *odometer) advanceNarrow(raw uint64, speed float64, after time.Duration) bool {
	o.wide = o.wide || raw >= 1<<32
	if !o.wide && speed*after.Seconds() >= 1<<32 {
		o.last, o.began = raw, true
		return false
	}
	if wrapped := raw + 1<<32 - o.last; o.began && raw < o.last && !o.wide && float64(wrapped) <= speed*after.Seconds() {
		o.total += float64(wrapped)
		o.last = raw
	}
	o.advance(raw)
	return true
}

// traffic lists the sources of the bytes of one direction of one kind of link. The best source comes first.
type traffic struct {
	to      *metrics.Family
	field   fieldID // of the whole GPU
	narrow  bool    // field has 32 bits, so any other source is better
	unit    float64 // bytes per unit of field
	perLink uint32  // field in bytes of each NVLink; 0 if there is none
	gpm     nvml.GpmMetricId
}

var (
	pcieTraffic = []traffic{
		{
			to: metrics.GPUPCIeTransmit, field: fieldID{id: nvml.FI_DEV_PCIE_COUNT_TX_BYTES}, narrow: true, unit: 1,
			gpm: nvml.GPM_METRIC_PCIE_TX_PER_SEC,
		},
		{
			to: metrics.GPUPCIeReceive, field: fieldID{id: nvml.FI_DEV_PCIE_COUNT_RX_BYTES}, narrow: true, unit: 1,
			gpm: nvml.GPM_METRIC_PCIE_RX_PER_SEC,
		},
	}
	nvlinkTraffic = []traffic{
		{
			metrics.GPUNVLinkTransmit,
			fieldID{nvml.FI_DEV_NVLINK_THROUGHPUT_DATA_TX, scopeAllLinks},
			false, kibi,
			nvml.FI_DEV_NVLINK_COUNT_XMIT_BYTES, nvml.GPM_METRIC_NVLINK_TOTAL_TX_PER_SEC,
		},
		{
			metrics.GPUNVLinkReceive,
			fieldID{nvml.FI_DEV_NVLINK_THROUGHPUT_DATA_RX, scopeAllLinks},
			false, kibi,
			nvml.FI_DEV_NVLINK_COUNT_RCV_BYTES, nvml.GPM_METRIC_NVLINK_TOTAL_RX_PER_SEC,
		},
	}
)

func readPCIeTraffic(d *nvmlDevice, s *sheet) error   { return d.readTraffic(s, pcieTraffic) }
func readNVLinkTraffic(d *nvmlDevice, s *sheet) error { return d.readTraffic(s, nvlinkTraffic) }

func (d *nvmlDevice) readTraffic(s *sheet, directions []traffic) error {
	for _, t := range directions {
		bytes, err := d.bytes(t)
		if err != nil {
			return err
		}
		s.add(t.to, bytes)
	}
	return nil
}

// bytes returns the total of one direction from the best source that the driver has not refused. A single failure does
// not change the source, because other sources count from another start.
func (d *nvmlDevice) bytes(t traffic) (float64, error) {
	if t.narrow {
		if total, err := d.gpmBytes(t); reachOf(err) != forGood {
			return total, err
		}
	}
	if !d.refused(t.field) {
		v, ok := d.values[t.field]
		if !ok {
			return 0, &callError{"reading " + t.to.Name, codeTimeout}
		}
		o := findOrMake(d.distance, distanceKey{t.to, t.field.scope})
		if !t.narrow {
			o.advance(integer(v))
		} else if !o.advanceNarrow(integer(v), d.pcieSpeed, d.sinceLast()) {
			return 0, errWraps
		}
		return o.total * t.unit, nil
	}
	if total, ok := d.linkTotal(t.to, t.perLink); ok {
		return total, nil
	}
	return d.gpmBytes(t)
}

// sinceLast returns the time since the last complete cycle, at least one interval.
func (d *nvmlDevice) sinceLast() time.Duration {
	if d.last.IsZero() {
		return d.lib.options.Interval
	}
	return max(d.now.Sub(d.last), d.lib.options.Interval)
}

// gpmBytes integrates the rate over the windows that GPM closes.
func (d *nvmlDevice) gpmBytes(t traffic) (float64, error) {
	o := findOrMake(d.distance, distanceKey{t.to, gpmDistance})
	switch rate, fresh := d.gpm.rates[t.gpm]; {
	case rate.err != nil:
		return 0, rate.err
	case fresh:
		o.total += rate.value * mebi * d.gpm.whole[fast].window.Seconds()
		o.began = true
		return o.total, nil
	case o.began:
		return o.total, nil
	case d.gpm.isOpen:
		return 0, &callError{"reading " + t.to.Name, codeTimeout} // the second sample is missing yet
	default:
		return 0, &callError{"reading " + t.to.Name, codeNotSupported}
	}
}

// gpmDistance distinguishes totals integrated from GPM from totals counted by fields.
const gpmDistance = 1<<32 - 2

// linkTotal returns the sum of a field over the NVLinks. A link that no longer answers keeps its last value, because a
// smaller total would look like a reset.
func (d *nvmlDevice) linkTotal(to *metrics.Family, field uint32) (total float64, ok bool) {
	if field == 0 {
		return 0, false
	}
	for link := range uint32(nvml.NVLINK_MAX_LINKS) {
		key := distanceKey{to, field<<8 | link}
		if v, answers := d.values[fieldID{field, link}]; answers {
			findOrMake(d.distance, key).advance(integer(v))
		}
		if o := d.distance[key]; o != nil {
			total += o.total
			ok = true
		}
	}
	return total, ok
}
