package gpu

import (
	"slices"
	"strconv"
	"strings"
	"time"
)

// kmsgRecord holds a kernel log record that the kernel itself wrote. Other records may come from any program.
type kmsgRecord struct {
	seq       uint64
	sinceBoot time.Duration
	message   string
}

// kmsgXID holds an XID from the kernel log.
type kmsgXID struct {
	seq       uint64
	sinceBoot time.Duration
	xid
	plain bool // the record has words, but no number
}

// kmsgSeq returns the number of a record such as "6,1234,5678901,-;…".
func kmsgSeq(line string) (uint64, bool) {
	numbers := strings.SplitN(line, ",", 3)
	if len(numbers) < 3 {
		return 0, false
	}
	seq, err := strconv.ParseUint(numbers[1], 10, 64)
	return seq, err == nil
}

// parseRecord reads one record of /dev/kmsg, such as "6,1234,5678901,-;NVRM: Xid (PCI:0000:3b:00): 79, …".
func parseRecord(line string) (r kmsgRecord, ok bool) {
	prefix, message, _ := strings.Cut(line, ";")
	numbers := strings.SplitN(prefix, ",", 4)
	if len(numbers) < 4 {
		return r, false
	}
	priority, err := strconv.ParseUint(numbers[0], 10, 32)
	if err != nil || priority >= 8 { // facility above 0: not the kernel
		return r, false
	}
	seq, ok := kmsgSeq(line)
	micros, err := strconv.ParseInt(numbers[2], 10, 53)
	if !ok || err != nil || micros < 0 {
		return r, false
	}
	return kmsgRecord{seq, time.Duration(micros) * time.Microsecond, message}, true
}

// parseKmsg reads a record that reports an XID.
func parseKmsg(line string) (x kmsgXID, ok bool) {
	r, _ := parseRecord(line)
	message, ok := strings.CutPrefix(r.message, "NVRM: ")
	if !ok {
		return x, false
	}
	x.seq, x.sinceBoot = r.seq, r.sinceBoot
	if rest, found := strings.CutPrefix(message, "Xid ("); found {
		where, rest, _ := strings.Cut(rest, ")")
		address, part, _ := strings.Cut(where, " ") // "PCI:0000:3b:00 GPU-I:02" for a MIG instance
		if instance, isPart := strings.CutPrefix(part, "GPU-I:"); isPart {
			digits, _, _ := strings.Cut(instance, " ")
			n, err := strconv.ParseUint(digits, 10, 16)
			x.instance = known(strconv.FormatUint(n, 10), err)
		}
		rest, isXID := strings.CutPrefix(rest, ": ")
		digits, text, hasComma := strings.Cut(rest, ",")
		code, err := strconv.ParseUint(digits, 10, 16)
		x.code = int(code)
		x.nonfatal = saysNonfatal(x.code, text)
		x.pci, ok = CanonicalPCI(address)
		return x, ok && isXID && hasComma && err == nil && isXIDCode(x.code)
	}
	if rest, found := strings.CutPrefix(message, "GPU "); found && strings.Contains(rest, "GPU has fallen off the bus") {
		address, _, _ := strings.Cut(rest, ": ")
		x.code, x.plain = 79, true
		x.pci, ok = CanonicalPCI(address)
		return x, ok
	}
	return x, false
}

// nvlink5Fatal holds status bits by the prefix of a unit's name. For these bits, NVIDIA's catalogue requires a reset
// (docs.nvidia.com/deploy/xid-errors, XID 144-150 decode). No bits mean that no status requires a reset. Other units
// report the severity as a word.
var nvlink5Fatal = []struct {
	unit string
	bits uint64
}{
	{"SAW_MVB", 0x12},
	{"RLW_CTRL", 0},
	{"RLW_REMAP", 0xc0},
	{"RLW_RSPCOL", 0x2},
	{"RLW_SRC_TRACK", 0x31},
	{"RLW_TAGSTATE", 0x120002},
	{"TLW_", 0x4},
	{"TREX", 0},
	{"NVLPW", 0},
	{"NETIR_BER_EVENT", 0},
}

// nvlink5Down holds the reasons for which a link goes down on purpose. They are in bits 20 to 25 of the first number.
var nvlink5Down = []uint64{0x26, 0x28}

// saysNonfatal reports whether the GPU continues after an XID of NVLink 5, such as "RLW_REMAP Nonfatal XC0 i0 Link 13
// (0x0409a082 0x00000080 …)". The numbers are the unit's information and status. The word decides if the numbers are
// missing, or if the unit's status does not show the severity.
func saysNonfatal(code int, text string) bool {
	words := strings.Fields(text)
	if !isNVLink5(code) || len(words) < 2 {
		return false
	}
	_, in, _ := strings.Cut(text, "(")
	numbers := strings.Fields(strings.TrimSuffix(in, ")"))
	if len(numbers) > 1 {
		info, errInfo := strconv.ParseUint(numbers[0], 0, 64)
		status, errStatus := strconv.ParseUint(strings.TrimSuffix(numbers[1], ")"), 0, 64)
		for _, u := range nvlink5Fatal {
			if errStatus == nil && strings.HasPrefix(words[0], u.unit) {
				return status&u.bits == 0
			}
		}
		switch {
		case errInfo == nil && strings.HasPrefix(words[0], "NETIR_LINK") && slices.Contains(nvlink5Down, info>>20&0x3f),
			errStatus == nil && strings.HasPrefix(words[0], "NETIR_MFDE") && status == 3:
			return true
		}
	}
	return words[1] == "Nonfatal"
}
