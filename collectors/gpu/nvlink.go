//go:build linux && cgo

package gpu

import (
	"strconv"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/llm-node-exporter/llm-node-exporter/metrics"
)

// nvlinks describes the far ends of a GPU's NVLinks. It outlives failures of the GPU.
type nvlinks struct {
	led      [nvml.NVLINK_MAX_LINKS]bool // the link was up once, so it is connected
	switched bool                        // one link leads to a switch, so all links do
}

// readFEC exports the FEC history of all NVLinks together. Sixteen series per link would be thousands on a node.
func readFEC(d *nvmlDevice, s *sheet) error {
	var err error = &callError{"nvmlDeviceGetFieldValues, FEC history", codeNotSupported}
	for bin := range fecBins {
		if total, ok := d.linkTotal(metrics.GPUNVLinkFEC, uint32(nvml.FI_DEV_NVLINK_COUNT_FEC_HISTORY_0+bin)); ok {
			s.add(metrics.GPUNVLinkFEC, total, strconv.Itoa(bin))
			err = nil
		}
	}
	return err
}

// readNVLinks exports which NVLinks are up. It leaves out inactive links without a far end, because cards have links
// for a bridge even if there is no bridge.
func readNVLinks(d *nvmlDevice, s *sheet) error {
	n := &d.nvlinks
	var inactive []int
	for link := range nvml.NVLINK_MAX_LINKS {
		v, ok := d.values[fieldID{nvml.FI_DEV_NVLINK_GET_STATE, uint32(link)}]
		switch state := integer(v); {
		case !ok:
		case state == nvml.NVLINK_STATE_ACTIVE || state == nvml.NVLINK_STATE_SLEEP:
			s.add(metrics.GPUNVLinkUp, 1, strconv.Itoa(link))
			if !n.led[link] {
				end, err := ask(d, "nvmlDeviceGetNvLinkRemoteDeviceType", func() (nvml.IntNvLinkDeviceType,
					nvml.Return,
				) {
					return d.handle.GetNvLinkRemoteDeviceType(link)
				})
				n.led[link], n.switched = true, n.switched || err == nil && end == nvml.NVLINK_DEVICE_TYPE_SWITCH
			}
		default:
			inactive = append(inactive, link)
		}
	}
	for _, link := range inactive {
		if n.switched || n.led[link] || d.hasFarEnd(link) {
			s.add(metrics.GPUNVLinkUp, 0, strconv.Itoa(link))
		}
	}
	return nil
}

// hasFarEnd reports whether the driver knows the far end of a link.
func (d *nvmlDevice) hasFarEnd(link int) bool {
	_, err := ask(d, "nvmlDeviceGetNvLinkRemotePciInfo_v2|nvmlDeviceGetNvLinkRemotePciInfo",
		func() (nvml.PciInfo, nvml.Return) { return d.handle.GetNvLinkRemotePciInfo(link) })
	return err == nil
}
