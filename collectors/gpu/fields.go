//go:build linux && cgo

package gpu

import (
	"encoding/binary"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/llm-node-exporter/llm-node-exporter/metrics"
)

// field describes a row of the batch that a single nvmlDeviceGetFieldValues reads. Fields are the cheapest way to read
// values. They are also the safest way, because a driver refuses an unknown field instead of ending the process.
type field struct {
	fieldID
	to      *metrics.Family // nil means that the value is only stored, for a call that needs it
	labels  []string        // label values after those of the GPU
	feature string          // as in llm_gpu_feature_supported; empty if the call that needs the field records the feature
	per     float64         // units of the driver per base unit; 0 if the driver uses the base unit
	row
	value  func(float64) (float64, bool)
	unless fieldID          // the field is read only while this other field has no answer; zero means always
	gpm    nvml.GpmMetricId // the field is read only while GPM lacks this rate; zero means always
	nvlink bool             // the field belongs to one NVLink, and is read only while the link is connected

	batch     int // batch in which the field is read: see alone
	restUntil time.Time
}

// unanswered is the return code of a field before it is read. Driver 580 leaves some fields out of a batch, but reports
// success. On an H200, these are the limits of power and temperature, and the times of hardware slowdowns.
const unanswered = math.MaxUint32

// alone is the batch of a field that is read by itself. Most fields are read in the first batch. The second batch has
// the fields that the driver left out of the first. Fields that the driver left out of both batches are read alone.
const alone = 2

// fieldID holds an NVML_FI_… number and its scope: an NVLink, a C2C link, a power scope, or nothing.
type fieldID struct{ id, scope uint32 }

// These are the scopes. In nvml.h, power scope 2 means both the memory and the base of the GPU. The base has only
// limits, so a power in this scope belongs to the memory.
const (
	scopeModule   = nvml.POWER_SCOPE_MODULE // power: GPU with CPU and memory (GH200, GB200)
	scopeMemory   = nvml.POWER_SCOPE_MEMORY // power: device memory
	scopeAllLinks = math.MaxUint32          // traffic of all NVLinks together
)

// deviceFields lists the fields of the GPU itself.
var deviceFields = []field{
	{
		fieldID: fieldID{id: nvml.FI_DEV_MEMORY_TEMP}, to: metrics.GPUTemperature, labels: []string{"memory"}, feature: "memory_temperature",
		value: positive,
	},
	{fieldID: fieldID{id: nvml.FI_DEV_TEMPERATURE_SHUTDOWN_TLIMIT}, row: at(slow)},
	{fieldID: fieldID{id: nvml.FI_DEV_TEMPERATURE_SLOWDOWN_TLIMIT}, row: at(slow)},
	{fieldID: fieldID{id: nvml.FI_DEV_TEMPERATURE_GPU_MAX_TLIMIT}, row: at(slow)},

	{fieldID: fieldID{id: nvml.FI_DEV_POWER_INSTANT}, to: metrics.GPUPower, labels: []string{"gpu"}, per: milli},
	{
		fieldID: fieldID{id: nvml.FI_DEV_POWER_AVERAGE}, to: metrics.GPUPower, labels: []string{"gpu_average"}, feature: "power_average",
		per: milli,
	},
	{
		fieldID: fieldID{nvml.FI_DEV_POWER_INSTANT, scopeModule}, to: metrics.GPUPower, labels: []string{"module"}, feature: "power_module",
		per: milli, value: positive,
	},
	{
		fieldID: fieldID{nvml.FI_DEV_POWER_INSTANT, scopeMemory}, to: metrics.GPUPower, labels: []string{"memory"}, feature: "power_memory",
		per: milli, value: positive,
	},
	{
		fieldID: fieldID{nvml.FI_DEV_POWER_AVERAGE, scopeMemory}, to: metrics.GPUPower, labels: []string{"memory_average"},
		feature: "power_memory", per: milli, value: positive,
	},
	{
		fieldID: fieldID{id: nvml.FI_DEV_POWER_CURRENT_LIMIT}, to: metrics.GPUPowerLimit, labels: []string{"enforced"},
		feature: "power_limit", per: milli, row: at(slow),
	},
	{
		fieldID: fieldID{id: nvml.FI_DEV_POWER_REQUESTED_LIMIT}, to: metrics.GPUPowerLimit, labels: []string{"requested"},
		feature: "power_limit", per: milli, row: at(slow),
	},
	{
		fieldID: fieldID{id: nvml.FI_DEV_POWER_DEFAULT_LIMIT}, to: metrics.GPUPowerLimit, labels: []string{"default"},
		feature: "power_limit", per: milli, row: at(slow),
	},
	{
		fieldID: fieldID{id: nvml.FI_DEV_POWER_MIN_LIMIT}, to: metrics.GPUPowerLimit, labels: []string{"min"}, feature: "power_limit",
		per: milli, row: at(slow),
	},
	{
		fieldID: fieldID{id: nvml.FI_DEV_POWER_MAX_LIMIT}, to: metrics.GPUPowerLimit, labels: []string{"max"}, feature: "power_limit",
		per: milli, row: at(slow),
	},
	{fieldID: fieldID{id: nvml.FI_DEV_TOTAL_ENERGY_CONSUMPTION}, to: metrics.GPUEnergy, feature: "energy", per: milli},

	{fieldID: fieldID{id: nvml.FI_DEV_ECC_CURRENT}, to: metrics.GPUECCMode, labels: []string{"current"}, feature: "ecc_mode", row: at(slow)},
	{fieldID: fieldID{id: nvml.FI_DEV_ECC_PENDING}, to: metrics.GPUECCMode, labels: []string{"pending"}, feature: "ecc_mode", row: at(slow)},
	{fieldID: fieldID{id: nvml.FI_DEV_ECC_SBE_VOL_TOTAL}, row: at(slow)},
	{fieldID: fieldID{id: nvml.FI_DEV_ECC_DBE_VOL_TOTAL}, row: at(slow)},
	{fieldID: fieldID{id: nvml.FI_DEV_ECC_SBE_AGG_TOTAL}, row: at(slow)},
	{fieldID: fieldID{id: nvml.FI_DEV_ECC_DBE_AGG_TOTAL}, row: at(slow)},
	{
		fieldID: fieldID{id: nvml.FI_DEV_REMAPPED_COR}, to: metrics.GPURemappedRows, labels: []string{"corrected"}, feature: "row_remap",
		row: at(slow),
	},
	{
		fieldID: fieldID{id: nvml.FI_DEV_REMAPPED_UNC}, to: metrics.GPURemappedRows, labels: []string{"uncorrected"}, feature: "row_remap",
		row: at(slow),
	},
	{fieldID: fieldID{id: nvml.FI_DEV_REMAPPED_PENDING}, to: metrics.GPURowRemapPending, feature: "row_remap", row: at(slow)},
	{fieldID: fieldID{id: nvml.FI_DEV_REMAPPED_FAILURE}, to: metrics.GPURowRemapFailure, feature: "row_remap", row: at(slow)},
	{
		fieldID: fieldID{id: nvml.FI_DEV_RETIRED_SBE}, to: metrics.GPURetiredPages, labels: []string{"corrected"}, feature: "retired_pages",
		row: at(slow),
	},
	{
		fieldID: fieldID{id: nvml.FI_DEV_RETIRED_DBE}, to: metrics.GPURetiredPages, labels: []string{"uncorrected"},
		feature: "retired_pages", row: at(slow),
	},
	{fieldID: fieldID{id: nvml.FI_DEV_RETIRED_PENDING}, to: metrics.GPURetiredPagesPending, feature: "retired_pages", row: at(slow)},
	{fieldID: fieldID{id: nvml.FI_DEV_GET_GPU_RECOVERY_ACTION}, to: metrics.GPURecoveryAction, feature: "recovery_action"},

	{fieldID: fieldID{id: nvml.FI_DEV_C2C_LINK_COUNT}, to: metrics.GPUC2CLinks, feature: "c2c_links", row: at(slow), value: positive},
	{fieldID: fieldID{id: nvml.FI_DEV_PCIE_COUNT_TX_BYTES}, gpm: nvml.GPM_METRIC_PCIE_TX_PER_SEC},
	{fieldID: fieldID{id: nvml.FI_DEV_PCIE_COUNT_RX_BYTES}, gpm: nvml.GPM_METRIC_PCIE_RX_PER_SEC},
	{fieldID: fieldID{id: nvml.FI_DEV_PCIE_REPLAY_COUNTER}, to: metrics.GPUPCIeReplays, feature: "pcie_replays", row: at(rare)},
	pcieError(nvml.FI_DEV_PCIE_L0_TO_RECOVERY_COUNTER, "l0_to_recovery"),
	pcieError(nvml.FI_DEV_PCIE_COUNT_CORRECTABLE_ERRORS, "correctable"),
	pcieError(nvml.FI_DEV_PCIE_COUNT_NAKS_RECEIVED, "naks_received"),
	pcieError(nvml.FI_DEV_PCIE_COUNT_NAKS_SENT, "naks_sent"),
	pcieError(nvml.FI_DEV_PCIE_COUNT_RECEIVER_ERROR, "receiver"),
	pcieError(nvml.FI_DEV_PCIE_COUNT_BAD_TLP, "bad_tlp"),
	pcieError(nvml.FI_DEV_PCIE_COUNT_BAD_DLLP, "bad_dllp"),
	pcieError(nvml.FI_DEV_PCIE_COUNT_LCRC_ERROR, "lcrc"),
	pcieError(nvml.FI_DEV_PCIE_COUNT_LANE_ERROR, "lane"),
	pcieError(nvml.FI_DEV_PCIE_COUNT_UNSUPPORTED_REQ, "unsupported_request"),
	pcieError(nvml.FI_DEV_PCIE_COUNT_NON_FATAL_ERROR, "non_fatal"),
	pcieError(nvml.FI_DEV_PCIE_COUNT_FATAL_ERROR, "fatal"),
}

// nvlinkFields lists the fields of a GPU with NVLink.
var nvlinkFields = []field{
	{fieldID: fieldID{nvml.FI_DEV_NVLINK_THROUGHPUT_DATA_TX, scopeAllLinks}},
	{fieldID: fieldID{nvml.FI_DEV_NVLINK_THROUGHPUT_DATA_RX, scopeAllLinks}},
}

// fecBins is the number of bins of the FEC history of an NVLink.
const fecBins = nvml.FI_DEV_NVLINK_COUNT_FEC_HISTORY_15 - nvml.FI_DEV_NVLINK_COUNT_FEC_HISTORY_0 + 1

// linkFields lists the fields of each NVLink. Fields after the CRC errors exist from NVLink 5 on.
var linkFields = []field{
	{fieldID: fieldID{id: nvml.FI_DEV_NVLINK_GET_STATE}, feature: "nvlink_state", row: at(slow)},
	linkError(nvml.FI_DEV_NVLINK_ERROR_DL_REPLAY, "replay"),
	linkError(nvml.FI_DEV_NVLINK_ERROR_DL_RECOVERY, "recovery"),
	linkError(nvml.FI_DEV_NVLINK_ERROR_DL_CRC, "crc"),
	{fieldID: fieldID{id: nvml.FI_DEV_NVLINK_COUNT_XMIT_BYTES}, unless: fieldID{nvml.FI_DEV_NVLINK_THROUGHPUT_DATA_TX, scopeAllLinks}},
	{fieldID: fieldID{id: nvml.FI_DEV_NVLINK_COUNT_RCV_BYTES}, unless: fieldID{nvml.FI_DEV_NVLINK_THROUGHPUT_DATA_RX, scopeAllLinks}},
	linkError(nvml.FI_DEV_NVLINK_COUNT_RCV_ERRORS, "receive"),
	linkError(nvml.FI_DEV_NVLINK_COUNT_XMIT_DISCARDS, "transmit_discard"),
	linkError(nvml.FI_DEV_NVLINK_COUNT_LOCAL_LINK_INTEGRITY_ERRORS, "local_integrity"),
	linkError(nvml.FI_DEV_NVLINK_COUNT_EFFECTIVE_ERRORS, "effective"),
	linkError(nvml.FI_DEV_NVLINK_COUNT_SYMBOL_ERRORS, "symbol"),
	linkError(nvml.FI_DEV_NVLINK_COUNT_LINK_RECOVERY_SUCCESSFUL_EVENTS, "link_recovery_succeeded"),
	linkError(nvml.FI_DEV_NVLINK_COUNT_LINK_RECOVERY_FAILED_EVENTS, "link_recovery_failed"),
	linkBitErrors(nvml.FI_DEV_NVLINK_COUNT_EFFECTIVE_BER, "effective"),
	linkBitErrors(nvml.FI_DEV_NVLINK_COUNT_SYMBOL_BER, "symbol"),
	linkBitErrors(nvml.FI_DEV_NVLINK_COUNT_RAW_BER_V2, "raw"),
}

// maxC2CLinks is the number of chip-to-chip links for which NVML has metrics.
const maxC2CLinks = 14

// c2cFields lists the fields of each chip-to-chip link between GPU and CPU (GH200, GB200).
var c2cFields = []field{
	{fieldID: fieldID{id: nvml.FI_DEV_C2C_LINK_GET_STATUS}, to: metrics.GPUC2CLinkUp, feature: "c2c_link", row: at(slow)},
	{fieldID: fieldID{id: nvml.FI_DEV_C2C_LINK_GET_MAX_BW}, to: metrics.GPUC2CLinkBandwidth, feature: "c2c_link", per: perMega, row: at(slow)},
	c2cError(nvml.FI_DEV_C2C_LINK_ERROR_INTR, "crc"),
	c2cError(nvml.FI_DEV_C2C_LINK_ERROR_REPLAY, "replay"),
	c2cError(nvml.FI_DEV_C2C_LINK_ERROR_REPLAY_B2B, "replay_back_to_back"),
}

const (
	milli = 1e3 // thousandths per unit
	nano  = 1e9
	kibi  = 1024
	mebi  = 1 << 20
	mega  = 1e6

	percent = 100
	perMega = 1 / mega // millions per unit
)

func pcieError(id uint32, kind string) field {
	return field{fieldID: fieldID{id: id}, to: metrics.GPUPCIeErrors, labels: []string{kind}, feature: "pcie_errors", row: at(rare)}
}

func linkError(id uint32, kind string) field {
	return field{fieldID: fieldID{id: id}, to: metrics.GPUNVLinkErrors, labels: []string{kind}, feature: "nvlink_errors", row: at(slow)}
}

func linkBitErrors(id uint32, kind string) field {
	return field{
		fieldID: fieldID{id: id}, to: metrics.GPUNVLinkBitErrors, labels: []string{kind}, feature: "nvlink_bit_errors",
		row: at(slow), value: bitErrors,
	}
}

func c2cError(id uint32, kind string) field {
	return field{fieldID: fieldID{id: id}, to: metrics.GPUC2CErrors, labels: []string{kind}, feature: "c2c_errors", row: at(slow)}
}

// bitErrors decodes a bit error rate, which has a mantissa and a number of divisions by ten. A value is not a rate if
// it is above one error per bit, or if all its bits are set.
func bitErrors(encoded float64) (float64, bool) {
	v := uint64(encoded)
	mantissa := v >> nvml.NVLINK_BER_MANTISSA_SHIFT & nvml.NVLINK_BER_MANTISSA_WIDTH
	exponent := v >> nvml.NVLINK_BER_EXP_SHIFT & nvml.NVLINK_BER_EXP_WIDTH
	rate := float64(mantissa) / math.Pow10(int(exponent))
	return rate, rate <= 1 && (mantissa != nvml.NVLINK_BER_MANTISSA_WIDTH || exponent != nvml.NVLINK_BER_EXP_WIDTH)
}

// positive drops zero, because zero means that the GPU has no such sensor.
func positive(v float64) (float64, bool) { return v, v > 0 }

// newFields returns the batch of a GPU with the given numbers of NVLinks and chip-to-chip links.
func newFields(links, c2cLinks int) []field {
	all := slices.Clone(deviceFields)
	for i := range all {
		all[i].mayBeSlow = all[i].tier == fast && all[i].to != nil
	}
	for _, e := range clockEvents {
		for _, f := range e.fields {
			row := field{
				fieldID: fieldID{id: f}, to: metrics.GPUClockEventSeconds, labels: []string{e.reason, "driver"},
				feature: "clock_event_seconds", per: nano, row: mayBeSlow,
			}
			if f != e.fields[0] {
				row.unless = fieldID{id: e.fields[0]}
			}
			all = append(all, row)
		}
	}
	if links > 0 {
		all = append(all, nvlinkFields...)
	}
	perLink := slices.Clone(linkFields)
	for bin := range uint32(fecBins) {
		perLink = append(perLink, field{fieldID: fieldID{id: nvml.FI_DEV_NVLINK_COUNT_FEC_HISTORY_0 + bin}, row: at(slow)})
	}
	for i := range perLink {
		perLink[i].nvlink = perLink[i].id != nvml.FI_DEV_NVLINK_GET_STATE
	}
	return slices.Concat(all, ofLinks(links, perLink), ofLinks(c2cLinks, c2cFields))
}

// leadsNowhere reports whether an NVLink is down and was never up, because boards have unconnected links.
func (d *nvmlDevice) leadsNowhere(link uint32) bool {
	v, ok := d.values[fieldID{nvml.FI_DEV_NVLINK_GET_STATE, link}]
	return ok && integer(v) == nvml.NVLINK_STATE_INACTIVE && !d.nvlinks.led[link]
}

// ofLinks returns the fields of each link.
func ofLinks(links int, fields []field) (all []field) {
	for link := range links {
		for _, f := range fields {
			f.scope = uint32(link)
			if f.to != nil {
				f.labels = append([]string{strconv.Itoa(link)}, f.labels...)
			}
			all = append(all, f)
		}
	}
	return all
}

// readFields reads the due fields. It reads each tier separately, to measure the tier's time.
func (d *nvmlDevice) readFields(s *sheet) {
	for t := range s.due + 1 {
		for batch := range alone {
			d.begin(s, t)
			d.readBatch(s, d.dueFields(t, batch))
		}
		for _, f := range d.dueFields(t, alone) {
			d.readBatch(s, []*field{f})
		}
	}
}

// dueFields returns the fields of a tier that are read in a batch.
func (d *nvmlDevice) dueFields(t tier, batch int) []*field {
	d.asked = d.asked[:0]
	for i := range d.fields {
		f := &d.fields[i]
		rate, byGPM := d.gpm.rates[f.gpm]
		if f.tier != t || f.batch != batch || d.now.Before(f.restUntil) || d.answered(f.unless) || byGPM && rate.err == nil || f.nvlink &&
			d.leadsNowhere(f.scope) {
			continue
		}
		d.asked = append(d.asked, f)
	}
	return d.asked
}

// readBatch reads fields with one call. The next batch has the fields that the driver leaves out.
func (d *nvmlDevice) readBatch(s *sheet, fields []*field) {
	d.batch = d.batch[:0]
	for _, f := range fields {
		d.batch = append(d.batch, nvml.FieldValue{FieldId: f.id, ScopeId: f.scope, NvmlReturn: unanswered})
	}
	err := d.getFieldValues(d.batch)
	for i, f := range fields {
		if err == nil && d.batch[i].NvmlReturn == unanswered && f.batch < alone {
			f.batch++
			continue
		}
		d.takeField(s, f, d.batch[i], err)
	}
}

func (d *nvmlDevice) getFieldValues(batch []nvml.FieldValue) error {
	if len(batch) == 0 {
		return nil // go-nvml takes the address of the first element
	}
	return d.call("nvmlDeviceGetFieldValues", func() nvml.Return { return d.handle.GetFieldValues(batch) })
}

// takeField stores one answer of the batch. Each field has its own return code.
func (d *nvmlDevice) takeField(s *sheet, f *field, v nvml.FieldValue, err error) {
	name := "nvmlDeviceGetFieldValues, field " + strconv.Itoa(int(f.id))
	switch {
	case err != nil:
	case v.NvmlReturn == unanswered:
		err = &callError{name, codeNotSupported}
	case v.NvmlReturn != 0:
		err = &callError{name, code(v.NvmlReturn)}
		d.condemn(err)
	}
	value := number(v)
	if err == nil && f.value != nil {
		var sensible bool
		if value, sensible = f.value(value); !sensible {
			err = &callError{name, codeNotSupported}
		}
	}
	if f.feature != "" {
		d.note(f.feature, err)
	}
	if err != nil {
		delete(d.values, f.fieldID)
		if reachOf(err) == forGood {
			f.restUntil = d.now.Add(restFor)
		}
		return
	}
	d.values[f.fieldID] = v
	if f.to == nil || d.answered(f.unless) || f.nvlink && d.leadsNowhere(f.scope) {
		return
	}
	if f.per != 0 {
		value /= f.per
	}
	f.took(time.Duration(v.LatencyUsec) * time.Microsecond)
	s.add(f.to, value, f.labels...)
}

// field returns the last answer for a field, and whether there was an answer.
func (d *nvmlDevice) field(id uint32) (float64, bool) {
	v, ok := d.values[fieldID{id: id}]
	return number(v), ok
}

// answered reports whether a field gave an answer when it was last read.
func (d *nvmlDevice) answered(id fieldID) bool {
	_, ok := d.values[id]
	return ok
}

// refused reports whether the driver has refused a field permanently.
func (d *nvmlDevice) refused(id fieldID) bool {
	for i := range d.fields {
		if d.fields[i].fieldID == id {
			return d.now.Before(d.fields[i].restUntil)
		}
	}
	return true // the field was not even read
}

// linkCount returns the number of links of a kind from a field. NVML's largest number of links is the limit.
func (d *nvmlDevice) linkCount(id uint32, most int) (int, error) {
	v := []nvml.FieldValue{{FieldId: id}}
	if err := d.getFieldValues(v); err != nil {
		return 0, err
	}
	if v[0].NvmlReturn != 0 {
		err := &callError{"nvmlDeviceGetFieldValues, link count", code(v[0].NvmlReturn)}
		d.condemn(err)
		return 0, err
	}
	links := min(int(number(v[0])), most)
	if links == 0 {
		return 0, &callError{"nvmlDeviceGetFieldValues, link count", codeNotSupported}
	}
	return links, nil
}

// number decodes the value of a field.
func number(v nvml.FieldValue) float64 {
	switch bits := binary.NativeEndian.Uint64(v.Value[:]); nvml.ValueType(v.ValueType) {
	case nvml.VALUE_TYPE_DOUBLE:
		return math.Float64frombits(bits)
	case nvml.VALUE_TYPE_SIGNED_LONG_LONG:
		return float64(int64(bits))
	case nvml.VALUE_TYPE_SIGNED_INT:
		return float64(int32(binary.NativeEndian.Uint32(v.Value[:])))
	default:
		return float64(integer(v))
	}
}

// integer decodes the value of an unsigned field.
func integer(v nvml.FieldValue) uint64 {
	switch nvml.ValueType(v.ValueType) {
	case nvml.VALUE_TYPE_UNSIGNED_INT:
		return uint64(binary.NativeEndian.Uint32(v.Value[:]))
	case nvml.VALUE_TYPE_UNSIGNED_SHORT:
		return uint64(binary.NativeEndian.Uint16(v.Value[:]))
	default:
		return binary.NativeEndian.Uint64(v.Value[:])
	}
}
