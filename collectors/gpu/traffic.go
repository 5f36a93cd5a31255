//go:build linux && cgo

package gpu

import (
	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/llm-node-exporter/llm-node-exporter/metrics"
)

// odometer goes on counting where a driver counter wraps or starts again.
type odometer struct {
	last  uint64
	total float64
	began bool
}

type distanceKey struct {
	family *metrics.Family
	scope  uint32
}

// advance takes a reading. A counter that falls before it has passed 32 bits has wrapped there, as
// NVML warns that some do; a wider one has been reset.
func (o *odometer) advance(raw uint64) {
	switch {
	case !o.began || raw < o.last && o.last >= 1<<32:
		o.total += float64(raw)
	case raw < o.last:
		o.total += float64(raw + 1<<32 - o.last)
	default:
		o.total += float64(raw - o.last)
	}
	o.last, o.began = raw, true
}

// traffic is where the bytes of one direction of one kind of link can be read, best source first.
type traffic struct {
	to      *metrics.Family
	field   fieldID // of the whole GPU
	unit    float64 // bytes per unit of field
	perLink uint32  // field in bytes for each NVLink, 0 for none
	gpm     nvml.GpmMetricId
}

var (
	pcieTraffic = []traffic{
		{to: metrics.GPUPCIeTransmit, field: fieldID{id: nvml.FI_DEV_PCIE_COUNT_TX_BYTES}, unit: 1, gpm: nvml.GPM_METRIC_PCIE_TX_PER_SEC},
		{to: metrics.GPUPCIeReceive, field: fieldID{id: nvml.FI_DEV_PCIE_COUNT_RX_BYTES}, unit: 1, gpm: nvml.GPM_METRIC_PCIE_RX_PER_SEC},
	}
	nvlinkTraffic = []traffic{
		{metrics.GPUNVLinkTransmit, fieldID{nvml.FI_DEV_NVLINK_THROUGHPUT_DATA_TX, scopeAllLinks}, kibi, nvml.FI_DEV_NVLINK_COUNT_XMIT_BYTES, nvml.GPM_METRIC_NVLINK_TOTAL_TX_PER_SEC},
		{metrics.GPUNVLinkReceive, fieldID{nvml.FI_DEV_NVLINK_THROUGHPUT_DATA_RX, scopeAllLinks}, kibi, nvml.FI_DEV_NVLINK_COUNT_RCV_BYTES, nvml.GPM_METRIC_NVLINK_TOTAL_RX_PER_SEC},
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

// bytes is the total of one direction from the best source that the driver has not refused. A source
// that fails this time is not replaced by another one, which would count from elsewhere.
func (d *nvmlDevice) bytes(t traffic) (float64, error) {
	notNow := &callError{"reading " + t.to.Name, codeTimeout}
	if !d.refused(t.field) {
		v, ok := d.values[t.field]
		if !ok {
			return 0, notNow
		}
		o := findOrMake(d.distance, distanceKey{t.to, t.field.scope})
		o.advance(integer(v))
		return o.total * t.unit, nil
	}
	if total, ok := d.linkBytes(t); ok {
		return total, nil
	}
	rate, asked := d.gpm.rates[t.gpm]
	switch {
	case asked && rate.err == nil:
		o := findOrMake(d.distance, distanceKey{t.to, gpmDistance})
		o.total += rate.value * mebi * d.gpm.whole.window.Seconds()
		return o.total, nil
	case asked:
		return 0, rate.err
	case d.gpm.isOpen:
		return 0, notNow // the second sample is yet to come
	default:
		return 0, &callError{"reading " + t.to.Name, codeNotSupported}
	}
}

// gpmDistance keeps what is integrated from GPM apart from what fields count.
const gpmDistance = 1<<32 - 2

// linkBytes is the sum over the links. A link that does not answer any more keeps what it had: a
// total that falls would look like a reset.
func (d *nvmlDevice) linkBytes(t traffic) (total float64, ok bool) {
	if t.perLink == 0 {
		return 0, false
	}
	for link := range uint32(nvml.NVLINK_MAX_LINKS) {
		key := distanceKey{t.to, link}
		if v, answers := d.values[fieldID{t.perLink, link}]; answers {
			findOrMake(d.distance, key).advance(integer(v))
		}
		if o := d.distance[key]; o != nil {
			total += o.total
			ok = true
		}
	}
	return total, ok
}
