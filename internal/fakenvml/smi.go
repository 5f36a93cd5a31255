package fakenvml

import (
	"encoding/xml"
	"fmt"
	"strconv"
	"strings"
)

// SMI returns the output of nvidia-smi -q -x for the state. It has the elements and units of release 570 and later
// (nvsmi_device_v13.dtd). If a GPU does not report a value, the value is N/A, as in nvidia-smi.
func (s *State) SMI() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	gpus, _ := strconv.Atoi(s.lines[[2]string{System, "gpus"}])
	cuda, _ := strconv.Atoi(s.lines[[2]string{System, "cuda_version"}])
	p := &smiPrinter{}
	p.open("nvidia_smi_log")
	p.leaf("driver_version", s.lines[[2]string{System, "driver_version"}])
	p.leaf("cuda_version", fmt.Sprintf("%d.%d", cuda/1000, cuda%1000/10))
	p.leaf("attached_gpus", strconv.Itoa(gpus))
	for i := range gpus {
		p.gpu(func(key string) string {
			device := strconv.Itoa(i)
			v, ok := s.lines[[2]string{device, key}]
			if !ok {
				v = s.lines[[2]string{All, key}]
			}
			if strings.HasPrefix(v, "!") {
				return ""
			}
			return strings.ReplaceAll(strings.TrimPrefix(v, "u32 "), "#", device)
		})
	}
	p.close("nvidia_smi_log")
	return `<?xml version="1.0" ?>` + "\n" + `<!DOCTYPE nvidia_smi_log SYSTEM "nvsmi_device_v13.dtd">` + "\n" + p.String()
}

// smiPrinter writes the document.
type smiPrinter struct{ strings.Builder }

func (p *smiPrinter) open(name string)  { fmt.Fprintf(p, "<%s>\n", name) }
func (p *smiPrinter) close(name string) { fmt.Fprintf(p, "</%s>\n", name) }

func (p *smiPrinter) leaf(name, text string) {
	if text == "" {
		text = "N/A"
	}
	fmt.Fprintf(p, "<%s>", name)
	_ = xml.EscapeText(p, []byte(text)) // writing to a builder cannot fail
	fmt.Fprintf(p, "</%s>\n", name)
}

func (p *smiPrinter) in(name string, inside func()) {
	p.open(name)
	inside()
	p.close(name)
}

// number converts a value of NVML to nvidia-smi's unit, and adds the unit. It returns an empty string for an empty
// value.
func number(v string, per float64, decimals int, unit string) string {
	n, err := strconv.ParseInt(v, 0, 64)
	if err != nil {
		return ""
	}
	return strconv.FormatFloat(float64(n)/per, 'f', decimals, 64) + unit
}

// word returns the word for a value that is 0 or 1. It returns an empty string for an empty value.
func word(v, no, yes string) string {
	switch v {
	case "0":
		return no
	case "1":
		return yes
	}
	return ""
}

// at returns one of the values that a key has, by index.
func at(v string, i int) string {
	if all := strings.Fields(v); i < len(all) {
		return all[i]
	}
	return ""
}

// gpu writes the element of a GPU. get returns the fake library's value of a key.
func (p *smiPrinter) gpu(get func(string) string) {
	architectures := map[string]string{"5": "Volta", "7": "Ampere", "9": "Hopper", "10": "Blackwell"}
	actions := map[string]string{"0": "None", "1": "GPU Reset", "2": "Node Reboot", "3": "Drain P2P", "4": "Drain and Reset"}
	p.in("gpu", func() {
		p.leaf("product_name", get("name"))
		p.leaf("product_architecture", architectures[get("architecture")])
		p.leaf("persistence_mode", word(get("persistence_mode"), "Disabled", "Enabled"))
		p.in("mig_mode", func() {
			p.leaf("current_mig", word(at(get("mig"), 0), "Disabled", "Enabled"))
			p.leaf("pending_mig", word(at(get("mig"), 1), "Disabled", "Enabled"))
		})
		p.leaf("serial", get("serial"))
		p.leaf("uuid", get("uuid"))
		p.leaf("minor_number", get("minor"))
		p.leaf("vbios_version", get("vbios"))
		p.in("platformInfo", func() {
			for i, element := range []string{"chassis_serial_number", "slot_number", "tray_index", "host_id", "peer_type", "module_id"} {
				p.leaf(element, at(get("platform"), i))
			}
		})
		p.leaf("c2c_mode", word(get("c2c_mode"), "Disabled", "Enabled"))
		p.leaf("gpu_recovery_action", actions[get("field.230")])
		p.leaf("gsp_firmware_version", get("gsp_firmware"))
		p.pci(get)
		p.leaf("fan_speed", number(get("fan.0"), 1, 0, " %"))
		state := get("pstate")
		if state != "" {
			state = "P" + state
		}
		p.leaf("performance_state", state)
		p.clockEvents(get)
		p.memory(get)
		p.errors(get)
		p.temperature(get)
		p.power(get)
		for _, clocks := range [][2]string{{"clocks", "clock."}, {"max_clocks", "clock_max."}} {
			p.in(clocks[0], func() {
				for element, domain := range map[string]string{
					"graphics_clock": "graphics", "sm_clock": "sm", "mem_clock": "memory",
					"video_clock": "video",
				} {
					p.leaf(element, number(get(clocks[1]+domain), 1, 0, " MHz"))
				}
			})
		}
		p.fabric(get)
		p.processes(get("processes"))
	})
}

func (p *smiPrinter) pci(get func(string) string) {
	p.in("pci", func() {
		p.leaf("pci_bus_id", get("pci"))
		p.in("pci_gpu_link_info", func() {
			p.in("pcie_gen", func() {
				p.leaf("max_link_gen", get("pcie.max_generation"))
				p.leaf("current_link_gen", get("pcie.generation"))
			})
			p.in("link_widths", func() {
				p.leaf("max_link_width", number(get("pcie.max_width"), 1, 0, "x"))
				p.leaf("current_link_width", number(get("pcie.width"), 1, 0, "x"))
			})
		})
		p.leaf("replay_counter", get("field.94"))
	})
}

func (p *smiPrinter) clockEvents(get func(string) string) {
	active, err := strconv.ParseUint(get("clock_events"), 0, 64)
	p.in("clocks_event_reasons", func() {
		for i, reason := range []string{
			"gpu_idle", "applications_clocks_setting", "sw_power_cap", "hw_slowdown", "sync_boost",
			"sw_thermal_slowdown", "hw_thermal_slowdown", "hw_power_brake_slowdown", "display_clocks_setting",
		} {
			text := ""
			if err == nil {
				text = word(strconv.FormatUint(active>>i&1, 10), "Not Active", "Active")
			}
			p.leaf("clocks_event_reason_"+reason, text)
		}
	})
	p.in("clocks_event_reasons_counters", func() {
		for reason, key := range map[string]string{
			"sw_power_cap": "field.74", "sync_boost": "field.76", "sw_therm_slowdown": "field.269",
			"hw_therm_slowdown": "field.270", "hw_power_brake": "field.271",
		} {
			p.leaf("clocks_event_reasons_counters_"+reason, number(get(key), 1e3, 0, " us"))
		}
	})
}

func (p *smiPrinter) memory(get func(string) string) {
	const mib = 1 << 20
	value := func(v string) int64 { n, _ := strconv.ParseInt(v, 0, 64); return n }
	left := func(total string, taken ...string) string {
		n := value(total)
		for _, t := range taken {
			n -= value(t)
		}
		if total == "" {
			return ""
		}
		return strconv.FormatInt(n, 10)
	}
	fb, bar1 := get("memory"), get("bar1")
	p.in("fb_memory_usage", func() {
		p.leaf("total", number(at(fb, 0), mib, 0, " MiB"))
		p.leaf("reserved", number(at(fb, 2), mib, 0, " MiB"))
		p.leaf("used", number(at(fb, 1), mib, 0, " MiB"))
		p.leaf("free", number(left(at(fb, 0), at(fb, 1), at(fb, 2)), mib, 0, " MiB"))
	})
	p.in("bar1_memory_usage", func() {
		p.leaf("total", number(at(bar1, 0), mib, 0, " MiB"))
		p.leaf("used", number(at(bar1, 1), mib, 0, " MiB"))
		p.leaf("free", number(left(at(bar1, 0), at(bar1, 1)), mib, 0, " MiB"))
	})
	p.in("utilization", func() {
		p.leaf("gpu_util", number(at(get("utilization"), 0), 1, 0, " %"))
		p.leaf("memory_util", number(at(get("utilization"), 1), 1, 0, " %"))
		for element, key := range map[string]string{
			"encoder_util": "encoder", "decoder_util": "decoder", "jpeg_util": "jpeg",
			"ofa_util": "ofa",
		} {
			p.leaf(element, number(at(get(key), 0), 1, 0, " %"))
		}
	})
}

func (p *smiPrinter) errors(get func(string) string) {
	p.in("ecc_mode", func() {
		p.leaf("current_ecc", word(get("field.1"), "Disabled", "Enabled"))
		p.leaf("pending_ecc", word(get("field.2"), "Disabled", "Enabled"))
	})
	sram := get("sram_errors") // parity and SEC-DED errors since the driver was loaded, then over the life of the board, then by unit
	switch {
	case get("sram_threshold") == "": // the values come from one call
		sram = ""
	case sram == "":
		sram = "0 0 0 0 0 0 0 0 0"
	}
	p.in("ecc_errors", func() {
		for i, lifetime := range []string{"volatile", "aggregate"} {
			p.in(lifetime, func() {
				p.leaf("sram_correctable", get(fmt.Sprintf("ecc.7.0.%d", i)))
				p.leaf("sram_uncorrectable_parity", at(sram, 2*i))
				p.leaf("sram_uncorrectable_secded", at(sram, 2*i+1))
				p.leaf("dram_correctable", get(fmt.Sprintf("ecc.2.0.%d", i)))
				p.leaf("dram_uncorrectable", get(fmt.Sprintf("ecc.2.1.%d", i)))
				if lifetime == "aggregate" {
					p.leaf("sram_threshold_exceeded", word(get("sram_threshold"), "No", "Yes"))
				}
			})
		}
		p.in("aggregate_uncorrectable_sram_sources", func() {
			for i, unit := range []string{"l2", "sm", "pcie", "microcontroller", "other"} {
				p.leaf("sram_"+unit, at(sram, 4+i))
			}
		})
		p.leaf("channel_repair_pending", word(at(get("repair"), 0), "No", "Yes"))
		p.leaf("tpc_repair_pending", word(at(get("repair"), 1), "No", "Yes"))
		p.leaf("unrepairable_memory", word(get("unrepairable"), "No", "Yes"))
	})
	p.in("retired_pages", func() {
		p.in("multiple_single_bit_retirement", func() { p.leaf("retired_count", get("field.29")) })
		p.in("double_bit_retirement", func() { p.leaf("retired_count", get("field.30")) })
		p.leaf("pending_retirement", word(get("field.31"), "No", "Yes"))
	})
	p.in("remapped_rows", func() {
		p.leaf("remapped_row_corr", get("field.142"))
		p.leaf("remapped_row_unc", get("field.143"))
		p.leaf("remapped_row_pending", word(get("field.144"), "No", "Yes"))
		p.leaf("remapped_row_failure", word(get("field.145"), "No", "Yes"))
		p.in("row_remapper_histogram", func() {
			for i, availability := range []string{"max", "high", "partial", "low", "none"} {
				p.leaf("row_remapper_histogram_"+availability, number(at(get("row_remap_banks"), i), 1, 0, " bank(s)"))
			}
		})
	})
}

func (p *smiPrinter) temperature(get func(string) string) {
	p.in("temperature", func() {
		p.leaf("gpu_temp", number(get("temperature"), 1, 0, " C"))
		p.leaf("gpu_temp_tlimit", number(get("temperature_margin"), 1, 0, " C"))
		if get("temperature_threshold.0") != "" {
			for i, limit := range []string{"max", "slow", "max_mem", "max_gpu"} { // shutdown, slowdown, memory, GPU
				p.leaf("gpu_temp_"+limit+"_threshold", number(get(fmt.Sprintf("temperature_threshold.%d", i)), 1, 0, " C"))
			}
		} else {
			p.leaf("gpu_temp_max_tlimit_threshold", number(get("field.193"), 1, 0, " C"))
			p.leaf("gpu_temp_slow_tlimit_threshold", number(get("field.194"), 1, 0, " C"))
			p.leaf("gpu_temp_max_gpu_tlimit_threshold", number(get("field.196"), 1, 0, " C"))
		}
		p.leaf("memory_temp", number(get("field.82"), 1, 0, " C"))
	})
}

func (p *smiPrinter) power(get func(string) string) {
	watts := func(key string) string { return number(get(key), 1e3, 2, " W") }
	p.in("gpu_power_readings", func() {
		p.leaf("average_power_draw", watts("field.185"))
		p.leaf("instant_power_draw", watts("field.186"))
		p.leaf("current_power_limit", watts("field.190"))
		p.leaf("requested_power_limit", watts("field.192"))
		p.leaf("default_power_limit", watts("field.189"))
		p.leaf("min_power_limit", watts("field.187"))
		p.leaf("max_power_limit", watts("field.188"))
	})
	p.in("gpu_memory_power_readings", func() {
		p.leaf("average_power_draw", watts("field.185.2"))
		p.leaf("instant_power_draw", watts("field.186.2"))
	})
	p.in("module_power_readings", func() { p.leaf("instant_power_draw", watts("field.186.1")) })
}

func (p *smiPrinter) processes(all string) {
	p.in("processes", func() {
		for one := range strings.FieldsSeq(all) {
			pid, rest, _ := strings.Cut(one, ":")
			used, _, _ := strings.Cut(rest, ":")
			p.in("process_info", func() {
				p.leaf("pid", pid)
				p.leaf("type", "C")
				p.leaf("process_name", "VLLM::Worker")
				p.leaf("used_memory", number(used, 1<<20, 0, " MiB"))
			})
		}
	})
}

func (p *smiPrinter) fabric(get func(string) string) {
	states := map[string]string{"1": "Not Started", "2": "In Progress", "3": "Completed"}
	summaries := map[string]string{"1": "Healthy", "2": "Unhealthy", "3": "Limited Capacity"}
	fabric, cluster := get("fabric"), get("fabric_cluster")
	p.in("fabric", func() {
		p.leaf("state", states[at(fabric, 0)])
		if len(cluster) == 32 {
			cluster = cluster[:8] + "-" + cluster[8:12] + "-" + cluster[12:16] + "-" + cluster[16:20] + "-" + cluster[20:]
		} else if fabric != "" {
			cluster = "00000000-0000-0000-0000-000000000000"
		}
		p.leaf("cliqueId", get("fabric_clique"))
		p.leaf("clusterUuid", cluster)
		mask, _ := strconv.ParseUint(at(fabric, 1), 0, 64) // two bits per check: 0 not supported, 1 fails, 2 passes
		check := func(shift uint, fails, does string) string { return []string{"", fails, does, ""}[mask>>shift&3] }
		p.in("health", func() {
			p.leaf("summary", summaries[at(fabric, 2)])
			p.leaf("bandwidth", check(0, "Degraded", "Full"))
			p.leaf("route_recovery_in_progress", check(2, "True", "False"))
			p.leaf("route_unhealthy", check(4, "True", "False"))
			p.leaf("access_timeout_recovery", check(6, "True", "False"))
			if wrong := mask >> 8 & 15; wrong == 1 { // other units have their own names
				p.leaf("incorrect_configuration", "None")
			}
		})
	})
}
