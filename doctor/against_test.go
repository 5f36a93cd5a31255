package doctor

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/llm-node-exporter/llm-node-exporter/internal/fakenvml"
)

// cards lists GPUs that the fake library describes, with the metrics page that the exporter read from it through NVML.
var cards = []cardOf{
	{"hopper", 2, []string{fakenvml.H100}, 150},
	{"ampere", 1, []string{fakenvml.A100}, 150},
	{"volta", 1, []string{fakenvml.A100, fakenvml.V100}, 150},
	{"blackwell", 1, []string{fakenvml.H100, fakenvml.GB200}, 150},
	{"unified_memory", 1, []string{fakenvml.H100, fakenvml.GB10}, 150},
}

type cardOf struct {
	page     string
	gpus     int
	from     []string
	compared int // minimum number of values of a GPU
}

// pageOf returns the reading of a metrics page.
func pageOf(t *testing.T, text []byte) *Reading {
	t.Helper()
	parser := expfmt.NewTextParser(model.UTF8Validation)
	page, err := parser.TextToMetricFamilies(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	return &Reading{page: page}
}

func card(t *testing.T, page string, gpus int, from ...string) (document []byte, r *Reading) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("../collectors/gpu/testdata", page+".prom"))
	if err != nil {
		t.Fatal(err)
	}
	state, err := fakenvml.NewState(filepath.Join(t.TempDir(), "lib"), gpus, from...)
	if err != nil {
		t.Fatal(err)
	}
	return []byte(state.SMI()), pageOf(t, text)
}

func against(t *testing.T, document []byte, readings ...*Reading) Comparison {
	t.Helper()
	c, err := AgainstSMI(document, true, readings...)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// TestAgainstSMI checks that the exporter reports the same values as nvidia-smi for the same state.
func TestAgainstSMI(t *testing.T) {
	for _, card := range cards {
		t.Run(card.page, func(t *testing.T) {
			c := againstCard(t, card.page, card.gpus, card.from)
			t.Log(c.Text())
			if c.Status() != 0 {
				t.Errorf("the exporter and nvidia-smi differ:\n%s", c.Text())
			}
			if got := c.count("0", Right); got < card.compared {
				t.Errorf("only %d values of a GPU were compared", got)
			}
			if all := len(c.of("0").Values); all < 150 {
				t.Errorf("only %d values of a GPU are accounted for", all)
			}
		})
	}
}

func againstCard(t *testing.T, page string, gpus int, from []string) Comparison {
	document, r := card(t, page, gpus, from...)
	return against(t, document, r)
}

// Every difference of nvidia-smi is found, in every element with a value: a wrong number, another word, another name.
func TestAgainstSMIFindsEachWrongValue(t *testing.T) {
	for _, card := range cards {
		document, r := card.document(t)
		right := against(t, document, r)
		for _, v := range right.Values {
			if v.Outcome != Right || v.Why != "" || v.GPU != "0" || v.Element == "uuid" || v.Element == "processes" {
				continue // without its UUID, the element is another GPU
			}
			element, _, _ := strings.Cut(v.Element, " - ")
			changed := change(document, element)
			if bytes.Equal(changed, document) {
				t.Errorf("%s: %s is not in the document", card.page, element)
			} else if c := against(t, changed, r); c.count("", Wrong) == 0 {
				t.Errorf("%s: a wrong %s is not found", card.page, v.Element)
			}
		}
	}
}

func (c cardOf) document(t *testing.T) ([]byte, *Reading) { return card(t, c.page, c.gpus, c.from...) }

// change changes the value of an element of the first GPU. The path lists the names of the element's parents, then its
// own name.
func change(document []byte, path string) []byte {
	at := bytes.Index(document, []byte("<gpu>"))
	for name := range strings.SplitSeq(path, "/") {
		next := bytes.Index(document[at:], []byte("<"+name+">"))
		if next < 0 {
			return document
		}
		at += next
	}
	value := regexp.MustCompile(`>([^<]*)<`).FindSubmatchIndex(document[at:])
	text := string(document[at+value[2] : at+value[3]])
	other := map[string]string{
		"Yes": "No", "No": "Yes", "Enabled": "Disabled", "Disabled": "Enabled", "Active": "Not Active",
		"Not Active": "Active", "None": "GPU Reset", "Healthy": "Unhealthy", "True": "False", "False": "True", "Full": "Degraded",
	}[text]
	if other == "" {
		other = regexp.MustCompile(`^[-\d.]+`).ReplaceAllStringFunc(text, func(n string) string {
			return "7" + strings.TrimLeft(n, "-") +
				"7777777"
		})
	}
	if other == text {
		other = "Another" + text
	}
	if strings.HasPrefix(text, "P") && len(text) < 4 {
		other = "P13"
	}
	return append(append(append([]byte{}, document[:at+value[2]]...), other...), document[at+value[3]:]...)
}

// TestAgainstSMIOutcomes checks values and a GPU that the exporter lacks, values that changed, and values that no
// longer have a meaning.
func TestAgainstSMIOutcomes(t *testing.T) {
	document, r := card(t, "hopper", 2, fakenvml.H100)
	outcome := func(c Comparison, element string) string {
		for _, v := range c.Values {
			if v.Element == element {
				return string(v.Outcome) + " " + v.Why
			}
		}
		return "nothing"
	}
	lost := *r
	lost.page = map[string]*dto.MetricFamily{}
	for name, f := range r.page {
		if name != "llm_gpu_performance_state" {
			lost.page[name] = f
		}
	}
	if c := against(t, document, &lost); outcome(c, "performance_state") != "missing " || c.Status() != 1 {
		t.Errorf("a lost series is %s, status %d", outcome(c, "performance_state"), c.Status())
	}
	three, _ := card(t, "hopper", 3, fakenvml.H100)
	if c := against(t, three, r); outcome(c, "gpu") != "missing the exporter has no such GPU" || outcome(c, "attached_gpus") != "wrong " {
		t.Errorf("a third GPU is %s", outcome(c, "gpu"))
	}
	if right := against(t, document, r); outcome(right, "fan_speed") != "right neither has it" {
		t.Errorf("a fan that nobody has: %s", outcome(right, "fan_speed"))
	}
	for said, want := range map[string]Outcome{"N/A": Right, "30 %": Wrong} { // the exporter reports the value as unsupported
		c := against(t, bytes.Replace(document, []byte("<fan_speed>N/A<"), []byte("<fan_speed>"+said+"<"), 1), r)
		for _, v := range c.of("0").Values {
			if v.Element == "fan_speed" && strings.HasPrefix(v.Series, "llm_gpu_feature_supported") && v.Outcome != want {
				t.Errorf("nvidia-smi says %s of a fan that the exporter does not find: %s", said, v.Outcome)
			}
		}
	}
	old, err := AgainstSMI(document, false, r)
	if err != nil || outcome(old, "clocks/sm_clock") != "not_comparable it changes, and was read at another time" ||
		outcome(old, "max_clocks/sm_clock") != "right " {
		t.Errorf("an old file: %v, %s, %s", err, outcome(old, "clocks/sm_clock"), outcome(old, "max_clocks/sm_clock"))
	}
	unknown := bytes.Replace(document, []byte("1755 MHz</sm_clock>"), []byte("1755 kHz</sm_clock>"), 1)
	if c := against(t, unknown, r); outcome(c, "clocks/sm_clock") != `not_comparable its unit or text is not known: "kHz"` {
		t.Errorf("an unknown unit: %s", outcome(c, "clocks/sm_clock"))
	}
	if c := against(t, document, r); outcome(c, "bar1_memory_usage/free") != "not_comparable the exporter does not have it" {
		t.Errorf("%s", outcome(c, "bar1_memory_usage/free"))
	}
	for text, want := range map[string]string{
		"": "EOF", "<html></html>": "begins with <html>",
		"<nvidia_smi_log></nvidia_smi_log>": "lists no GPU",
	} {
		if _, err := AgainstSMI([]byte(text), true, r); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// TestRealCards reads bundles of real cards, idle and at their power limit.
func TestRealCards(t *testing.T) {
	files, _ := filepath.Glob("testdata/*.tar.gz")
	if len(files) < 2 {
		t.Fatal(files)
	}
	for _, file := range files {
		packed, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		document, readings, ok, err := OpenBundle(packed)
		if !ok || err != nil || len(readings) != 2 {
			t.Fatal(file, ok, err)
		}
		if c := against(t, document, readings...); c.Status() != 0 || c.count("0", Right) < 150 {
			t.Errorf("%s:\n%s", file, c.Text())
		}
	}
}

// A bundle gives the same comparison as its node, and does not identify the node.
func TestBundle(t *testing.T) {
	document, r := card(t, "blackwell", 1, fakenvml.H100, fakenvml.GB200)
	packed, err := Bundle(document, r)
	if err != nil {
		t.Fatal(err)
	}
	theirs, readings, ok, err := OpenBundle(packed)
	if !ok || err != nil || len(readings) != 1 {
		t.Fatal(ok, err)
	}
	want, got := against(t, document, r), against(t, theirs, readings...)
	if len(want.Values) != len(got.Values) || got.Status() != 0 {
		t.Errorf("%d values became %d:\n%s", len(want.Values), len(got.Values), got.Text())
	}
	page, err := (identities{}).page(readings[0])
	if err != nil {
		t.Fatal(err)
	}
	for _, secret := range []string{
		"GPU-00000000-0000-4000-8000-000000000000", "1650000000000", "1821025190042", "51a5e3c2", "VLLM",
		">40000<",
	} {
		if !bytes.Contains(document, []byte(secret)) {
			t.Errorf("%s is not in the document before", secret)
		}
		if bytes.Contains(theirs, []byte(secret)) || bytes.Contains(page, []byte(secret)) {
			t.Errorf("the bundle has %s", secret)
		}
	}
	if _, _, ok, _ := OpenBundle(document); ok {
		t.Error("a document is taken for a bundle")
	}
}

// Each value of files that nvidia-smi -q -x printed on real cards is understood: its unit, its words, its spelling. The files
// are not in this repository: SMI_XML=FOLDER go test ./doctor -run Recorded -v.
func TestRecordedSMI(t *testing.T) {
	files, _ := filepath.Glob(filepath.Join(os.Getenv("SMI_XML"), "*.xml"))
	if os.Getenv("SMI_XML") == "" || len(files) == 0 {
		t.Skip("SMI_XML names no folder of files")
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		log, err := readSMI(bytes.NewReader(text))
		if err != nil {
			t.Errorf("%s: %v", file, err)
			continue
		}
		for _, g := range log.gpus {
			read, silent := 0, 0
			for _, row := range smiRows {
				for _, path := range row.paths {
					value, ok := g.values[path]
					switch {
					case !ok:
					case smiSilent(value):
						silent++
					default:
						read++
						if _, unit, ok := smiNumber(value); row.text == "" && !row.offers && !ok {
							t.Errorf("%s: %s = %q is not understood (%q)", filepath.Base(file), path, value, unit)
						}
					}
				}
			}
			t.Logf("%s, %s, driver %s: %d elements, of which %d are compared with the exporter: %d values, and %d that the card does not have",
				filepath.Base(file),
				g.values["product_name"], log.node["driver_version"], len(g.values), read+silent, read, silent)
		}
	}
}
