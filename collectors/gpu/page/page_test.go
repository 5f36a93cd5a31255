package page

import (
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/llm-node-exporter/llm-node-exporter/collectors/scrape"
	"github.com/llm-node-exporter/llm-node-exporter/internal/e2e"
	"github.com/llm-node-exporter/llm-node-exporter/internal/golden"
	"github.com/llm-node-exporter/llm-node-exporter/metrics"
)

// The GPUs of the metrics pages in testdata.
const (
	uuid0 = "GPU-6c0e1f7a-2f0b-4d1c-9a55-0d7c3f1b2a01"
	uuid1 = "GPU-6c0e1f7a-2f0b-4d1c-9a55-0d7c3f1b2a02"
)

// node is an exporter's metrics page and a collector that reads it.
type node struct {
	*Collector
	t      *testing.T
	now    time.Time
	server *httptest.Server
	answer atomic.Pointer[http.HandlerFunc]
	log    strings.Builder
	kernel e2e.Buffer // log records about the kernel log
}

func newNode(t *testing.T) *node {
	n := &node{t: t, now: time.Unix(1_700_000_000, 0)}
	n.server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { (*n.answer.Load())(w, r) }))
	t.Cleanup(n.server.Close)
	n.Collector = n.collector(Target{URL: n.server.URL})
	return n
}

func (n *node) collector(targets ...Target) *Collector {
	c, err := New(Options{Logger: slog.New(slog.NewTextHandler(&n.log, nil)), Targets: targets, Limits: scrape.Limits{
		BodyBytes: 1 << 20,
		Series:    5000, LabelValueBytes: 200,
	}})
	if err != nil {
		n.t.Fatal(err)
	}
	return c
}

// read makes the collector read a metrics page, 15 seconds after the last one.
func (n *node) read(page string) {
	answer := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		_, _ = w.Write([]byte(page))
	})
	n.answer.Store(&answer)
	n.Read(n.t.Context(), n.now)
	n.now = n.now.Add(15 * time.Second)
}

// value returns the value of the only series of a family with all of these parts; absent if there is no such series.
func (n *node) value(f *metrics.Family, parts ...string) string {
	n.t.Helper()
	found := "absent"
	for line := range strings.Lines(golden.Page(n.t, n.Collector)) {
		rest, ok := strings.CutPrefix(line, f.Name)
		if !ok || !strings.ContainsAny(rest[:1], "{ ") || slices.ContainsFunc(parts, func(p string) bool { return !strings.Contains(rest, p) }) {
			continue
		}
		if found != "absent" {
			n.t.Errorf("several series of %s have %s", f.Name, parts)
		}
		found = strings.TrimSpace(rest[strings.LastIndexByte(rest, ' '):])
	}
	return found
}

// want compares with the value of a series, as the text format writes it.
func (n *node) want(want string, f *metrics.Family, parts ...string) {
	n.t.Helper()
	if got := n.value(f, parts...); got != want {
		n.t.Errorf("%s%s is %s, want %s", f.Name, parts, got, want)
	}
}

func file(t *testing.T, name string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata/pages", name+".prom"))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// without drops the lines of a metrics page that match.
func without(page, pattern string) string {
	return regexp.MustCompile(`(?m)^.*(?:`+pattern+`).*\n`).ReplaceAllString(page, "")
}

// with replaces the value of a source in the lines that contain a part.
func with(t *testing.T, page, name, part, value string) string {
	t.Helper()
	line := regexp.MustCompile(`(?m)^(` + name + `\{.*` + part + `.*\}) \S+$`)
	if !line.MatchString(page) {
		t.Fatalf("the page has no %s with %s", name, part)
	}
	return line.ReplaceAllString(page, "${1} "+value)
}

// TestGoldens reads every metrics page twice and compares the output.
func TestGoldens(t *testing.T) {
	files, err := filepath.Glob("testdata/pages/*.prom")
	if err != nil || len(files) == 0 {
		t.Fatal(err)
	}
	var missing golden.Missing
	for _, f := range files {
		t.Run(filepath.Base(f), func(t *testing.T) {
			n := newNode(t)
			page := file(t, strings.TrimSuffix(filepath.Base(f), ".prom"))
			n.read(page)
			n.read(page)
			whole := strings.ReplaceAll(golden.Page(t, n.Collector), strings.TrimPrefix(n.server.URL, "http://"), "HOST:9400")
			golden.Compare(t, "testdata/golden/"+filepath.Base(f), missing.Cut(strings.TrimSuffix(filepath.Base(f), ".prom"), whole))
		})
	}
	missing.Compare(t, "testdata/missing.tsv", len(files))
	golden.All(t, "testdata/golden/*.prom", len(files))
}

// TestEveryFamilyHasOneAnswer checks that a family of a GPU is in the table, among the labels, or missing for its own
// reason; never two of these.
func TestEveryFamilyHasOneAnswer(t *testing.T) {
	for _, s := range sources {
		for _, f := range metrics.All() {
			if f.Owner != metrics.GPU && f.Owner != metrics.Allocation || f == metrics.GPUSourceUp || f == metrics.GPUMetricSourceInfo {
				continue
			}
			answers := 0
			if slices.ContainsFunc(s.Rows, func(r Row) bool { return r.To == f }) {
				answers++
			}
			for _, m := range []map[*metrics.Family]string{s.Says, s.Missing} {
				if m[f] != "" {
					answers++
				}
			}
			if answers > 1 || s.Otherwise == "" {
				t.Errorf("%s: %d answers for %s", s.Name, answers, f.Name)
			}
		}
	}
}

// TestRows checks that labels are those of the family, and that a number that is not native has an explanation.
func TestRows(t *testing.T) {
	for _, s := range sources {
		for _, r := range s.Rows {
			for _, l := range r.Set {
				if !r.To.HasLabel(l.Name) {
					t.Errorf("%s: %s has no label %s", s.Name, r.To.Name, l.Name)
				}
			}
			for _, l := range []string{r.Carry.To, r.By} {
				if l != "" && !r.To.HasLabel(l) {
					t.Errorf("%s: %s has no label %s", s.Name, r.To.Name, l)
				}
			}
			if (r.Quality != "") != (r.Why != "") {
				t.Errorf("%s: %s from %s is %q because %q", s.Name, r.To.Name, r.From.name, r.Quality, r.Why)
			}
			if (r.Is == rate || r.Is == latest) && (r.To.Kind != metrics.Counter || r.Quality != metrics.Approximate) {
				t.Errorf("%s: %s is counted from %s, so it is an approximate counter", s.Name, r.To.Name, r.From.name)
			}
		}
	}
}

// TestReleases checks that three releases report the same values in different names and units.
func TestReleases(t *testing.T) {
	for _, release := range []string{"dcgm-4.2.3", "dcgm-4.8.4", "dcgm-4.9.0"} {
		t.Run(release, func(t *testing.T) {
			n := newNode(t)
			n.read(file(t, release))
			n.want("1", metrics.GPUSourceUp, `source="dcgm"`)
			n.want("3.45e+08", metrics.GPUClock, uuid1, `domain="sm"`)
			n.want("887654.321", metrics.GPUEnergy, uuid1)
			n.want("0.97", metrics.GPUUtilization, uuid0)
			n.want("7.6636225536e+10", metrics.GPUMemoryUsed, uuid0)
			n.want("214.5", metrics.GPUPower, uuid1, "gpu_average")
			n.want("1", metrics.GPURemappedRows, uuid1, `cause="uncorrected"`)
			n.want("88", metrics.GPUTemperature, uuid1, `sensor="gpu"`)
			n.want("1", metrics.GPUInfo, uuid0, `name="NVIDIA H100 80GB HBM3"`, `pci_bus_id="0000:1b:00.0"`)
			n.want("2", metrics.GPUVisible)
			if release != "dcgm-4.8.4" { // nanoseconds, whatever the help says, then seconds
				n.want("92", metrics.GPUClockEventSeconds, uuid1, `reason="sw_thermal_slowdown"`, `source="driver"`)
			}
		})
	}
}

// TestAliases checks DCGM 4.6, in which some of the names of 4.9 stand for the old unit. Names that came with the
// new unit decide, never a value.
func TestAliases(t *testing.T) {
	n := newNode(t)
	old := file(t, "dcgm-4.8.4")
	alias := strings.ReplaceAll(old, "DCGM_FI_DEV_GPU_UTIL", "DCGM_FI_DEV_GPU_UTIL_RATIO")
	n.read(alias)
	n.want("absent", metrics.GPUUtilization)
	n.want("1.98e+09", metrics.GPUClock, uuid0, `domain="sm"`)
	for _, page := range []string{
		with(t, strings.ReplaceAll(alias, `DCGM_FI_DRIVER_VERSION`, `DCGM_FI_SYSTEM_DRIVER_VERSION`), "DCGM_FI_DEV_GPU_UTIL_RATIO", uuid0, "1"),
		with(t, file(t, "dcgm-4.9.0"), "DCGM_FI_DEV_GPU_UTIL_RATIO", uuid0, "1"),
		with(t, file(t, "dcgm-4.8.4"), "DCGM_FI_DEV_GPU_UTIL", uuid0, "100"),
	} {
		n.read(page)
		n.want("1", metrics.GPUUtilization, uuid0)
	}
	n.read(strings.ReplaceAll(old, "DCGM_FI_DEV_GPU_TEMP", "DCGM_FI_DEV_GPU_TEMP_CELSIUS")) // an alias with the same unit
	n.want("54", metrics.GPUTemperature, uuid0, `sensor="gpu"`)
}

// TestBothNames checks a rolling upgrade, whose metrics page may have both names: the newer name counts, and the two
// are not added up.
func TestBothNames(t *testing.T) {
	n := newNode(t)
	n.read(file(t, "dcgm-4.8.4") + with(t, file(t, "dcgm-4.9.0"), "DCGM_FI_DEV_SM_CLOCK_HERTZ", uuid0, "1755000000"))
	n.want("1.755e+09", metrics.GPUClock, uuid0, `domain="sm"`)
	n.want("7.6636225536e+10", metrics.GPUMemoryUsed, uuid0)
	n.want("887654.321", metrics.GPUEnergy, uuid1)
}

const xidGauge = "DCGM_FI_DEV_XID_ERRORS"

// xid returns a metrics page on which GPU 0 has a latest XID.
func xid(t *testing.T, code string) string {
	return with(t, without(file(t, "dcgm-4.2.3"), xidGauge+`\{.*`+uuid1), xidGauge, uuid0, code)
}

// TestXIDsByChange checks that changes of a gauge that holds the latest XID are counted. An XID on the first
// metrics page may be old.
func TestXIDsByChange(t *testing.T) {
	none := without(file(t, "dcgm-4.2.3"), xidGauge)
	for name, c := range map[string]struct {
		pages []string
		want  string // XIDs 79 of GPU 0
	}{
		"zero, then the same one twice":            {[]string{xid(t, "0"), xid(t, "79"), xid(t, "79")}, "1"},
		"no series before the first":               {[]string{none, xid(t, "79"), xid(t, "79")}, "1"},
		"another one between":                      {[]string{none, xid(t, "79"), xid(t, "31"), xid(t, "79")}, "2"},
		"forgotten, then again":                    {[]string{none, xid(t, "79"), none, xid(t, "79")}, "2"},
		"there before the exporter":                {[]string{xid(t, "79"), xid(t, "79")}, "0"},
		"an outage of the page between is no news": {[]string{none, xid(t, "79"), "", xid(t, "79")}, "1"},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t)
			for _, p := range c.pages {
				n.read(p)
			}
			n.want(c.want, metrics.GPUXIDErrors, uuid0, `xid="79"`, `severity="page"`, `source="dcgm"`, `pci_bus_id="0000:1b:00.0"`)
			n.want("0", metrics.GPUXIDErrors, uuid1, `xid="79"`)
		})
	}
}

// TestNoXIDsAreNotZero checks that a metrics page that does not show that XIDs are read has none of their series,
// whatever else it reports about XIDs. The first XID is served as zero before it counts, otherwise increase() would see
// no increase.
func TestNoXIDsAreNotZero(t *testing.T) {
	n := newNode(t)
	none := without(file(t, "dcgm-4.2.3"), xidGauge)
	for _, page := range []string{none, none + `DCGM_EXP_XID_ERRORS_COUNT{gpu="0",UUID="` + uuid0 +
		`",xid="79",window_size_in_ms="300000"} 3` + "\n"} {
		n.read(page)
		n.want("absent", metrics.GPUXIDErrors)
		n.want("1", metrics.GPUMetricSourceInfo, `metric="llm_gpu_xid_errors_total"`, `quality="missing"`,
			"no series shows whether XIDs are read")
		n.want("absent", metrics.GPUMetricSourceInfo, `metric="llm_gpu_xid_errors_total"`, `source="DCGM`)
	}
	for _, want := range []string{"0", "1", "1"} {
		n.read(xid(t, "79"))
		n.want(want, metrics.GPUXIDErrors, uuid0, `xid="79"`)
	}
}

// TestPageWithoutUUIDs checks that GPUs that cannot be distinguished do not count, and that the reason is exported.
func TestPageWithoutUUIDs(t *testing.T) {
	n := newNode(t)
	n.read(strings.NewReplacer("UUID=", "other=").Replace(file(t, "dcgm-4.8.4")))
	n.want("0", metrics.GPUSourceUp, `reason="no_gpu_uuid"`)
	n.want("absent", metrics.GPUUp)
	if log := n.log.String(); !strings.Contains(log, "relabelling") {
		t.Errorf("the log has no remedy: %s", log)
	}
}

// TestImpossibleNumbers checks that numbers that no GPU can have, and numbers that DCGM and drivers write for an
// unknown value, are dropped and counted.
func TestImpossibleNumbers(t *testing.T) {
	const page, util = "dcgm-4.8.4-extended", "DCGM_FI_DEV_GPU_UTIL"
	for _, c := range []struct {
		field, raw, reason string
		to                 *metrics.Family
	}{
		{util, "4294967295", "blank", metrics.GPUUtilization},
		{util, "9223372036854775792", "blank", metrics.GPUUtilization},
		{util, "300", "implausible", metrics.GPUUtilization},
		{util, "-1", "implausible", metrics.GPUUtilization},
		{"DCGM_FI_DEV_FB_USED", "2147483632", "blank", metrics.GPUMemoryUsed},
		{"DCGM_FI_DEV_FB_USED", "9223372036854775794", "blank", metrics.GPUMemoryUsed},
		{"DCGM_FI_DEV_FB_USED", "-5", "implausible", metrics.GPUMemoryUsed},
		{"DCGM_FI_DEV_POWER_USAGE", "140737488355328.000000", "blank", metrics.GPUPower},
		{"DCGM_FI_DEV_POWER_USAGE", "-12.5", "implausible", metrics.GPUPower},
		{"DCGM_FI_DEV_SM_CLOCK", "2147483635", "blank", metrics.GPUClock},
		{"DCGM_FI_DEV_GPU_TEMP", "1000", "implausible", metrics.GPUTemperature},
	} {
		n := newNode(t)
		for i := range 2 {
			n.read(with(t, file(t, page), c.field, uuid0, c.raw))
			n.want(strconv.Itoa(i+1), metrics.GPUReadingsDropped, uuid0, `metric="`+c.to.Name+`"`, `reason="`+c.reason+`"`)
		}
		n.want("absent", metrics.GPUReadingsDropped, uuid1)
		for line := range strings.Lines(golden.Page(t, n.Collector)) {
			if strings.HasPrefix(line, c.to.Name+"{") && strings.Contains(line, uuid0) && (c.to == metrics.GPUUtilization ||
				c.to == metrics.GPUMemoryUsed) {
				t.Errorf("%s %s: %s", c.field, c.raw, line)
			}
		}
	}
}

// TestXIDsCounted checks that the exporter's own counter is preferred to the gauge beside it. Without events it has
// one series that names no XID.
func TestXIDsCounted(t *testing.T) {
	n := newNode(t)
	page := file(t, "dcgm-4.8.4-extended")
	n.read(without(page, xidGauge))
	n.read(with(t, page, xidGauge, uuid1, "48"))
	n.want("2", metrics.GPUXIDErrors, uuid1, `xid="79"`)
	n.want("0", metrics.GPUXIDErrors, uuid0, `xid="79"`)
	n.want("0", metrics.GPUXIDErrors, uuid1, `xid="48"`)
	n.want("absent", metrics.GPUXIDErrors, `xid=""`)
	n.want("absent", metrics.GPUClockEventActive, `reason=""`)
}

// TestRatesAreNoCounters checks rates whose names and types look like counters. Rates are integrated over the time
// between two metrics pages, except the bandwidth of NVLink, which has no direction, and the bandwidth of PCIe in
// KB.
func TestRatesAreNoCounters(t *testing.T) {
	n := newNode(t)
	page := file(t, "dcgm-4.8.4")
	n.read(page)
	n.want("0", metrics.GPUPCIeTransmit, uuid0)
	n.read(page)
	n.want("1.8e+07", metrics.GPUPCIeTransmit, uuid0) // 1.2 MB/s for 15 s
	n.read(page)
	n.want("3.6e+07", metrics.GPUPCIeTransmit, uuid0) // the same sample again does not mean a stall
	n.now = n.now.Add(time.Hour)
	n.read(page)
	n.want("3.6e+07", metrics.GPUPCIeTransmit, uuid0) // nobody looked
	n.want("absent", metrics.GPUNVLinkTransmit)
	n.want("1", metrics.GPUMetricSourceInfo, `metric="llm_gpu_pcie_transmit_bytes_total"`, `quality="approximate"`)

	n = newNode(t)
	n.read(file(t, "dcgm-4.2.3"))
	n.read(file(t, "dcgm-4.2.3"))
	n.want("absent", metrics.GPUPCIeTransmit)
	n.read(file(t, "dcgm-4.8.4-extended"))
	n.want("5.55e+07", metrics.GPUPCIeTransmit, uuid0)
}

// TestClockEvents checks that time that the driver counted comes first, then its older counters, then samples of
// the mask.
func TestClockEvents(t *testing.T) {
	n := newNode(t)
	page := file(t, "dcgm-4.8.4-extended")
	n.read(page)
	n.read(page)
	n.want("1.5", metrics.GPUClockEventSeconds, uuid0, `reason="sw_power_cap"`)
	n.want("92", metrics.GPUClockEventSeconds, uuid1, `reason="hw_thermal_slowdown"`, `source="driver"`)
	n.want("15", metrics.GPUClockEventSeconds, uuid1, `reason="hw_slowdown"`, `source="sampled"`)
	n.want("1", metrics.GPUClockEventActive, uuid1, `reason="hw_thermal_slowdown"`)
	n.want("0", metrics.GPUClockEventActive, uuid0, `reason="hw_thermal_slowdown"`)
	n.read(without(page, "CLOCKS_EVENT_REASON"))
	n.want("1.7", metrics.GPUClockEventSeconds, uuid0, `reason="sw_power_cap"`)
	n.read(without(page, "CLOCK"))
	n.want("absent", metrics.GPUClockEventSeconds, `reason="hw_slowdown"`)
	n.read(with(t, without(page, "DEV_CLOCK"), "DCGM_EXP_CLOCK_EVENTS_COUNT", "hw_thermal", "3"))
	n.want("1", metrics.GPUClockEventActive, uuid1, `reason="hw_thermal_slowdown"`)
	n.read(with(t, page, "DCGM_FI_DEV_CLOCK_THROTTLE_REASONS", uuid0, strconv.Itoa(0x200|0x8000)))
	n.want("1", metrics.GPUClockEventActive, uuid0, `reason="board_limit"`)
	n.want("1", metrics.GPUClockEventActive, uuid0, `reason="unknown_0x8000"`)
}

// TestMIG checks that values of the GPU are repeated for each instance, and values of an instance are not; the UUID
// is the GPU's.
func TestMIG(t *testing.T) {
	n := newNode(t)
	n.read(file(t, "dcgm-mig"))
	n.read(with(t, file(t, "dcgm-mig"), xidGauge, uuid0, "95"))
	n.want("1", metrics.GPUVisible)
	n.want("512.347", metrics.GPUPower, uuid0)
	n.want("54", metrics.GPUTemperature, uuid0)
	n.want("987654.321", metrics.GPUEnergy, uuid0)
	n.want("3.145728e+10", metrics.GPUMemoryUsed, `gpu_instance_id="1"`)
	n.want("3.9845888e+10", metrics.GPUMemoryUsed, `gpu_instance_id="2"`)
	n.want("absent", metrics.GPUMemoryUsed, `gpu_instance_id=""`)
	n.want("0.9", metrics.GPUGraphicsActive, `gpu_instance_id="2"`)
	n.want("1", metrics.GPUMIGInfo, `gpu_instance_id="1"`, `profile="3g.40gb"`)
	n.want("1", metrics.GPUXIDErrors, `xid="95"`)
	n.read(strings.ReplaceAll(strings.ReplaceAll(file(t, "dcgm-mig"), xidGauge, "DCGM_EXP_XID_ERRORS_TOTAL"), `err_code="0"`, `xid="95"`))
	n.want("0", metrics.GPUXIDErrors, `xid="95"`) // of the GPU, once
	want := []string{"1 prod small-0 vllm", "2 prod small-1 vllm"}
	if got := owners(n.Collector); !slices.Equal(got, want) {
		t.Errorf("owners are %q, want %q", got, want)
	}
}

func owners(c *Collector) (all []string) {
	for _, o := range c.Owners() {
		all = append(all, strings.TrimSpace(o.InstanceID+" "+o.Namespace+" "+o.Pod+" "+o.Container))
	}
	slices.Sort(all)
	return all
}

// TestSharedGPU checks a GPU on which two pods take turns, with a row for each. It is one GPU with two owners. Rows
// of CPUs and switches belong to no GPU.
func TestSharedGPU(t *testing.T) {
	n := newNode(t)
	n.read(file(t, "dcgm-shared"))
	n.want("1", metrics.GPUVisible)
	n.want("512.347", metrics.GPUPower)
	n.want("0.6", metrics.GPUUtilization) // if reported for each pod: the value of one pod, never a sum
	if got, want := owners(n.Collector), []string{"dev b-0 vllm", "prod a-0 vllm"}; !slices.Equal(got, want) {
		t.Errorf("owners are %q, want %q", got, want)
	}
}

// TestWorkloadLabels checks other spellings of a pod, and a metrics page that went through a Prometheus, whose
// plain labels are about the exporter.
func TestWorkloadLabels(t *testing.T) {
	n := newNode(t)
	n.read(file(t, "dcgm-old-namespace"))
	n.want("1.98e+09", metrics.GPUClock, uuid0)
	if got, want := owners(n.Collector), []string{"prod chat-0 vllm"}; !slices.Equal(got, want) {
		t.Errorf("owners are %q, want %q", got, want)
	}
	page := regexp.MustCompile(`(container|namespace|pod)="`).ReplaceAllString(file(t, "dcgm-4.8.4"), `exported_$1="`)
	page = strings.ReplaceAll(page, `",exported_container`,
		`",namespace="monitoring",pod="dcgm-exporter-x",instance="10.0.0.9:9400",exported_container`)
	n.read(page)
	if got, want := owners(n.Collector), []string{"prod chat-0 vllm", "prod chat-1 vllm"}; !slices.Equal(got, want) {
		t.Errorf("owners are %q, want %q", got, want)
	}
	n.read(regexp.MustCompile(`,exported_\w+="[^"]*"`).ReplaceAllString(page, "")) // idle
	if got := owners(n.Collector); len(got) != 0 {
		t.Errorf("owners are %q, and the page names only its own exporter", got)
	}
}

// TestAbsent checks that a metric that a metrics page lacks has no series and a reason, never a zero.
func TestAbsent(t *testing.T) {
	n := newNode(t)
	n.read(without(file(t, "dcgm-4.8.4"), "DCGM_FI_PROF_|MEMORY_TEMP|SM_CLOCK"))
	for f, why := range map[*metrics.Family]string{
		metrics.GPUMemoryBandwidthUtilization: "profiling module", metrics.GPUTensorActive: "SYS_ADMIN",
		metrics.GPUPCIeTransmit:      "is not on the page",
		metrics.GPUFabricState:       "not established",
		metrics.GPUClockEventSeconds: "DCGM_FI_DEV_CLOCKS_EVENT_REASON_SW_POWER_CAP_NS is not on the page",
	} {
		n.want("absent", f)
		n.want("1", metrics.GPUMetricSourceInfo, `metric="`+f.Name+`"`, `quality="missing"`, why)
	}
	n.want("absent", metrics.GPUTemperature, `sensor="memory"`)
	n.want("absent", metrics.GPUClock, `domain="sm"`)
	page := with(t, file(t, "dcgm-4.8.4"), "DCGM_FI_DEV_MEMORY_TEMP", uuid0, "0") // no such sensor
	n.read(with(t, with(t, page, "DCGM_FI_DEV_GPU_TEMP", uuid0, "NaN"), "DCGM_FI_DEV_POWER_USAGE", uuid0, "+Inf"))
	n.want("absent", metrics.GPUTemperature, uuid0)
	n.want("absent", metrics.GPUPower, uuid0)
	n.read(without(file(t, "dcgm-4.8.4"), "DCGM_FI_PROF_|MEMORY_TEMP|SM_CLOCK"))
	n.want("1", metrics.GPUMetricSourceInfo, `metric="llm_gpu_utilization_ratio"`, `quality="native"`, `source="DCGM_FI_DEV_GPU_UTIL"`)
}

// TestLicence checks DCGM, which also reports 0 for a physical GPU, which needs no licence.
func TestLicence(t *testing.T) {
	page := file(t, "dcgm-4.8.4")
	n := newNode(t)
	n.read(page)
	n.want("absent", metrics.GPUVGPULicensed, uuid0)
	for _, name := range []string{"NVIDIA H100-20C", "GRID T4-16Q", "NVIDIA A100-1-5CME"} {
		n = newNode(t)
		n.read(strings.ReplaceAll(page, "NVIDIA H100 80GB HBM3", name))
		n.want("0", metrics.GPUVGPULicensed, uuid0)
		n.read(with(t, strings.ReplaceAll(page, "NVIDIA H100 80GB HBM3", name), "DCGM_FI_DEV_VGPU_LICENSE_STATUS", uuid0, "1"))
		n.want("1", metrics.GPUVGPULicensed, uuid0)
	}
}

// TestFalls checks that counters of the driver that start again, and numbers of rows that fall with a new board,
// are exported unchanged.
func TestFalls(t *testing.T) {
	n := newNode(t)
	page := file(t, "dcgm-4.8.4")
	n.read(page)
	page = with(t, page, "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", uuid1, "1000")
	n.read(with(t, page, "DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS", uuid1, "0"))
	n.want("1", metrics.GPUEnergy, uuid1)
	n.want("0", metrics.GPURemappedRows, uuid1, `cause="uncorrected"`)
	text := golden.Page(t, n.Collector)
	for name, kind := range map[string]string{"llm_gpu_remapped_rows": "gauge", "llm_gpu_energy_joules_total": "counter"} {
		if !strings.Contains(text, "# TYPE "+name+" "+kind+"\n") {
			t.Errorf("%s is no %s", name, kind)
		}
	}
}

// TestLostGPU checks that a GPU that falls off the bus disappears from the metrics page. The other one stays.
func TestLostGPU(t *testing.T) {
	n := newNode(t)
	n.read(file(t, "dcgm-4.8.4"))
	n.read(without(file(t, "dcgm-4.8.4"), uuid1))
	n.want("0", metrics.GPUUp, uuid1, `gpu="1"`, `reason="not_on_page"`)
	n.want("1", metrics.GPUUp, uuid0)
	n.want("absent", metrics.GPUClock, uuid1, `domain="sm"`)
	n.read(file(t, "dcgm-4.8.4"))
	n.want("1", metrics.GPUUp, uuid1)
}

// TestBadPages checks that each kind of unusable metrics page has its reason, withholds the GPUs and is logged
// once, with the remedy.
func TestBadPages(t *testing.T) {
	good := file(t, "dcgm-4.8.4")
	text := func(body string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/plain")
			_, _ = w.Write([]byte(body))
		}
	}
	many := func(rows int, row func(i int) string) string {
		var b strings.Builder
		for i := range rows {
			b.WriteString(row(i) + "\n")
		}
		return b.String()
	}
	for reason, c := range map[string]struct {
		answer http.HandlerFunc
		log    string
	}{
		"http_500": {func(w http.ResponseWriter, _ *http.Request) {
			http.Error(w, "failed to collect", http.StatusInternalServerError)
		}, "see the log of that exporter"},
		"unauthorized": {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusUnauthorized) }, "--gpu.source-http-config"},
		"parse_error":  {text(strings.Replace(good, `modelName="NVIDIA`, `modelName="A "quoted" name`, 1)), "line 3"},
		"not_metrics":  {text("<html>log in</html>\n"), "login page"},
		"no_gpu_page":  {text("node_load1 0.5\n"), "9400"},
		"limit_exceeded": {
			text(many(6000, func(i int) string { return "DCGM_FI_DEV_GPU_TEMP{gpu=\"" + strconv.Itoa(i) + "\"} 1" })),
			"5000 series",
		},
		"limit_exceeded ": {text(many(200, func(i int) string {
			return "DCGM_FI_DEV_GPU_TEMP{gpu=\"0\",UUID=\"GPU-" + strconv.Itoa(i) + "\"} 1"
		})), "128 GPUs"},
		"limit_exceeded  ":  {text(strings.ReplaceAll(good, "NVIDIA H100 80GB HBM3", strings.Repeat("x", 300))), "modelName"},
		"limit_exceeded   ": {text("# " + strings.Repeat("x", 2<<20) + "\n" + good), "1048576 bytes"},
		"connection_closed": {func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, "closed"},
		"truncated": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "100000")
			_, _ = w.Write([]byte(good))
		}, "died"},
		"timeout": {func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, "in time"},
	} {
		t.Run(reason, func(t *testing.T) {
			n := newNode(t)
			n.Collector = n.collector(Target{URL: n.server.URL, Timeout: 300_000_000})
			n.read(good)
			n.want("1", metrics.GPUSourceUp)
			n.log.Reset()
			n.answer.Store(&c.answer)
			for range 2 {
				n.Read(t.Context(), n.now)
			}
			n.want("0", metrics.GPUSourceUp, `reason="`+strings.TrimSpace(reason)+`"`)
			n.want("absent", metrics.GPUUp)
			if len(n.GPUs()) > 0 || len(n.Owners()) > 0 {
				t.Error("there still are GPUs")
			}
			if log := n.log.String(); strings.Count(log, "\n") != 1 || !strings.Contains(log, c.log) {
				t.Errorf("not one line with %q: %s", c.log, log)
			}
			n.read(good)
			n.want("1", metrics.GPUSourceUp)
		})
	}
}

// TestNoDialectOfEnginesReadsIt checks that repairs for engines apply only to the metrics pages of engines.
func TestNoDialectOfEnginesReadsIt(t *testing.T) {
	n := newNode(t)
	quoted, err := json.Marshal(file(t, "dcgm-4.2.3")) // as a build of llama.cpp sends its metrics page
	if err != nil {
		t.Fatal(err)
	}
	n.read(string(quoted))
	n.want("0", metrics.GPUSourceUp, `reason="parse_error"`)
	answer := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusServiceUnavailable)
		_, _ = io.WriteString(w, `{"error": {"type": "unavailable_error", "message": "Loading model"}}`)
	})
	n.answer.Store(&answer)
	n.Read(t.Context(), n.now)
	n.want("0", metrics.GPUSourceUp, `reason="http_503"`)
}

// TestAllGPUsGone checks that a metrics page that had GPUs and is empty has lost them. An empty metrics page that
// never had GPUs is an unknown page.
func TestAllGPUsGone(t *testing.T) {
	n := newNode(t)
	n.read("")
	n.want("0", metrics.GPUSourceUp, `reason="no_gpu_page"`)
	n.read(file(t, "dcgm-4.2.3"))
	n.want("1", metrics.GPUSourceUp)
	n.read("")
	n.want("1", metrics.GPUSourceUp, `source="dcgm"`)
	n.want("0", metrics.GPUVisible)
	n.want("0", metrics.GPUUp, uuid0, `reason="not_on_page"`)
}

// TestFirstPageThatAnswers checks that the first usable metrics page of several is read, and that a collector that
// is no longer needed exports nothing.
func TestFirstPageThatAnswers(t *testing.T) {
	var asked atomic.Int32
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		http.NotFound(w, r)
	}))
	t.Cleanup(other.Close)
	n := newNode(t)
	n.Collector = n.collector(Target{URL: other.URL}, Target{URL: n.server.URL})
	n.read("")
	n.want("0", metrics.GPUSourceUp, `reason="http_404"`)
	n.want("0", metrics.GPUSourceUp, `reason="no_gpu_page"`)
	for range 3 {
		n.read(file(t, "amd-1.5.1"))
		n.want("1", metrics.GPUSourceUp, `source="amd"`)
	}
	if n := asked.Load(); n != 2 {
		t.Errorf("the page that cannot be used was asked %d times", n)
	}
	n.options.Needed = func() bool { return false }
	n.read(file(t, "amd-1.5.1"))
	if page := golden.Page(t, n.Collector); page != "" || len(n.GPUs()) > 0 {
		t.Errorf("not needed, and it says\n%s", page)
	}
}

// TestAMD checks a configured prefix, GPUs without a UUID, and partitions that share a socket.
func TestAMD(t *testing.T) {
	n := newNode(t)
	page := file(t, "amd-1.5.1")
	const first = "692347000120"
	for _, p := range []string{page, regexp.MustCompile(`(?m)^(# \w+ )?(gpu|pcie)_`).ReplaceAllString(page, "${1}amd_${2}_")} {
		n.read(p)
		n.want("702", metrics.GPUPower, first, `scope="gpu"`)
		n.want("0.98", metrics.GPUUtilization, first)
		n.want("9876.54321", metrics.GPUEnergy, first)
		n.want("5", metrics.GPUPCIeLinkGeneration, first)
		n.want("3", metrics.GPUECCErrors, first, `severity="corrected"`)
		n.want("1", metrics.GPUMetricSourceInfo, `metric="llm_gpu_memory_used_bytes"`, `quality="approximate"`, "10^6")
		n.want("absent", metrics.GPUXIDErrors)
		n.want("2.1e+09", metrics.GPUClock, first, `domain="sm"`)
		n.want("2", metrics.GPUVisible)
	}
	partition := strings.NewReplacer(`gpu_id="1"`, `gpu_id="8"`, `gpu_partition_id="0"`, `gpu_partition_id="1"`, `692347000121`, first).
		Replace(page)
	n = newNode(t)
	n.read(without(page, `692347000121`) + without(partition, `gpu_id="0"|^#`))
	n.want("1", metrics.GPUVisible)
	n.want("702", metrics.GPUPower, first, `gpu="0"`, `scope="gpu"`)
	n = newNode(t)
	n.read(regexp.MustCompile(`serial_number="\d+"`).ReplaceAllString(page, `serial_number=""`))
	n.want("702", metrics.GPUPower, `gpu_uuid="gpu-node-2/0"`)
}

// TestConfiguration checks that URLs and secrets are refused as in the configuration of engines.
func TestConfiguration(t *testing.T) {
	for url, want := range map[string]string{"localhost:9400": "http://host:port", "http://u:p@localhost:9400": "password_file"} {
		if _, err := New(Options{Targets: []Target{{URL: url}}}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", url, err, want)
		}
	}
}

// TestAMDThrottledAndUnhealthy checks that an MI3xx reports the share of time with lowered clocks, and the reason, and
// that a GPU that its exporter reports as unhealthy is not up.
func TestAMDThrottledAndUnhealthy(t *testing.T) {
	n := newNode(t)
	const first, second = "692347000120", "692347000121"
	page := file(t, "amd-1.5.1-mi300-throttled")
	n.read(page)
	n.want("1", metrics.GPUUp, first, `reason=""`)
	n.want("0", metrics.GPUUp, second, `reason="unhealthy"`)
	n.want("1", metrics.GPUClockEventActive, first, `reason="socket_thermal"`)
	n.want("0", metrics.GPUClockEventActive, second, `reason="socket_thermal"`)
	n.want("0", metrics.GPUClockEventSeconds, first, `reason="socket_thermal"`)
	page = with(t, page, "gpu_violation_current_accumulated_counter", first, "1001500")
	n.read(with(t, page, "gpu_violation_socket_thermal_residency_accumulated", first, "250500")) // a third of 15 seconds
	n.want("5", metrics.GPUClockEventSeconds, first, `reason="socket_thermal"`, `source="sampled"`)
	n.want("0", metrics.GPUClockEventSeconds, first, `reason="sw_power_cap"`)
	// a restart
	n.read(with(t, with(t, page, "gpu_violation_current_accumulated_counter", first, "10"),
		"gpu_violation_socket_thermal_residency_accumulated", first, "10"))
	n.want("5", metrics.GPUClockEventSeconds, first, `reason="socket_thermal"`)
	n.read(file(t, "amd-1.5.1"))
	n.want("absent", metrics.GPUClockEventSeconds)
}
