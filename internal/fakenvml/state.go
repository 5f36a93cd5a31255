package fakenvml

import (
	"embed"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

//go:embed *.state
var descriptions embed.FS

// These are the embedded descriptions of nodes. NewState builds a state from one or more of them.
const (
	H100 = "h100" // Hopper: GPM, T.Limit, driver counters for every clock event
	A100 = "a100" // Ampere: no GPM, thresholds in degrees, SRAM status needs root
	MIG  = "mig"  // in addition to H100: GPU 0 is split

	GB200 = "gb200" // in addition to H100: NVLink 5, a module with a CPU
	GB10  = "gb10"  // in addition to H100: memory shared with the CPU
	V100  = "v100"  // in addition to A100: retired pages, old counters
)

// All and System are arguments of Set, in place of a GPU's index. Values of All apply to every GPU without its own
// value. Values of System belong to the library itself.
const (
	All    = "*"
	System = "-"
)

// State has the answers of a fake library. Tests may change the answers while the library is in use.
type State struct {
	path string

	mu     sync.Mutex
	lines  map[[2]string]string // value by device and key
	events map[int]int          // per GPU
}

// Describes reports whether any of the embedded descriptions has a key.
func Describes(key string) bool {
	files, _ := fs.Glob(descriptions, "*.state")
	return slices.ContainsFunc(files, func(file string) bool {
		text, _ := descriptions.ReadFile(file)
		return strings.Contains(string(text), "\n* "+key+" ")
	})
}

// NewState writes the state of a node with this number of GPUs, from descriptions. lib is the path that Build returned.
// PCI addresses are 0000:10:00.0, 0000:11:00.0 and so on.
func NewState(lib string, gpus int, from ...string) (*State, error) {
	s := &State{
		path:   filepath.Join(filepath.Dir(lib), "state"),
		lines:  make(map[[2]string]string),
		events: make(map[int]int),
	}
	for _, name := range from {
		text, err := descriptions.ReadFile(name + ".state")
		if err != nil {
			return nil, err
		}
		for line := range strings.Lines(string(text)) {
			if parts := strings.SplitN(strings.TrimSpace(line), " ", 3); len(parts) >= 2 && parts[0] != "#" {
				s.lines[[2]string{parts[0], parts[1]}] = strings.Join(parts[2:], "")
			}
		}
	}
	for i := range gpus {
		s.lines[[2]string{strconv.Itoa(i), "pci"}] = fmt.Sprintf("00000000:%02X:00.0", 0x10+i)
	}
	return s, s.Set(System, "gpus", gpus)
}

// Set changes values of a device, with immediate effect. keysAndValues alternates keys and values. A device is an
// index, "0/1" for the first MIG slot of GPU 0, All or System. A value "!15" makes the call fail with return code 15.
func (s *State) Set(device string, keysAndValues ...any) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := 0; i+1 < len(keysAndValues); i += 2 {
		s.lines[[2]string{device, fmt.Sprint(keysAndValues[i])}] = fmt.Sprint(keysAndValues[i+1])
	}
	return s.save()
}

// Unset removes keys from a device. The device then has the values of All, or does not support these keys.
func (s *State) Unset(device string, keys ...string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, key := range keys {
		delete(s.lines, [2]string{device, key})
	}
	return s.save()
}

// save replaces the file in one step, so that the library never reads an incomplete file.
func (s *State) save() error {
	lines := make([]string, 0, len(s.lines))
	for k, value := range s.lines {
		lines = append(lines, fmt.Sprintf("%s %s %s\n", k[0], k[1], value))
	}
	slices.Sort(lines)
	if err := os.WriteFile(s.path+".new", []byte(strings.Join(lines, "")), 0o644); err != nil {
		return err
	}
	return os.Rename(s.path+".new", s.path)
}

// XID makes a GPU report an XID. If a GPU instance is given, the XID is about this instance.
func (s *State) XID(gpu, code int, instance ...int) error {
	s.mu.Lock()
	s.events[gpu]++
	key := fmt.Sprintf("event.%d", s.events[gpu])
	s.mu.Unlock()
	return s.Set(strconv.Itoa(gpu), key, strings.Trim(fmt.Sprint(append([]int{code}, instance...)), "[]"))
}

// Lose makes every call for a GPU fail as if it had fallen off the bus.
func (s *State) Lose(gpu int) error { return s.Fail(gpu, 15) }

// Fail makes every call for a GPU return a code.
func (s *State) Fail(gpu, code int) error { return s.Set(strconv.Itoa(gpu), "lost", code) }

// Hang makes every call for a GPU block for d, or until Unhang.
func (s *State) Hang(gpu int, d time.Duration) error {
	return s.Set(strconv.Itoa(gpu), "hang", fmt.Sprint("* ", d.Milliseconds()))
}

// Unhang lets blocked calls return.
func (s *State) Unhang(gpu int) error { return s.Unset(strconv.Itoa(gpu), "hang") }
