package incident

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/llm-node-exporter/llm-node-exporter/internal/fakenvml"
	"github.com/llm-node-exporter/llm-node-exporter/internal/rulesim"
	"github.com/llm-node-exporter/llm-node-exporter/metrics"
	"github.com/llm-node-exporter/llm-node-exporter/rules"
	"github.com/llm-node-exporter/llm-node-exporter/slo"
)

// Live runs an incident in real time. The history before it is played in virtual time; the same world of replicas
// then continues under the machine's clock.
type Live struct {
	Incident Incident
	// Rules holds the rule file.
	Rules []byte

	play   *play
	gpus   *fakenvml.State
	kmsg   string
	mu     sync.Mutex // guards the world
	faults []Fault    // still to happen
	onset  time.Time  // zero: not set yet

	records int // written to the kernel log so far
}

// Options configure the surroundings of a Live.
type Options struct {
	Seed uint64
	// Engines are the addresses, host:port, that will serve the replicas' engines.
	Engines []string
	// GPUs is the node's NVML, with a GPU for each replica; nil when there is none. Kmsg is the file that stands for
	// the kernel log, the source of XIDs.
	GPUs *fakenvml.State
	Kmsg string
	// Style is the style of the rules.
	Style rules.Style
}

// Healthy returns a node without an incident: one model on three runtimes.
func Healthy() Incident {
	f := chat()
	f.Replicas, f.Runtimes = 3, []metrics.Runtime{metrics.VLLM, metrics.TensorRTLLM, metrics.TGI}
	f.Objectives = countedOn(map[slo.Signal][]metrics.Runtime{slo.TTFT: f.Runtimes[:2], slo.ITL: f.Runtimes[:1]}) // TGI reports neither
	return Incident{Name: "healthy", Story: "nothing happens", Fleet: f}
}

// NewLive prepares an incident whose history ends now. The caller must close it.
func NewLive(in Incident, o Options) (*Live, error) {
	groups := Rules()
	file, err := rules.Encode(rules.NewFile(groups, o.Style))
	if err != nil {
		return nil, err
	}
	onset := cmp.Or(in.History, defaultHistory)
	l := &Live{Incident: in, Rules: file, gpus: o.GPUs, kmsg: o.Kmsg, play: &play{incident: in, onset: onset}}
	l.faults = slices.SortedStableFunc(slices.Values(in.Faults), func(a, b Fault) int { return cmp.Compare(a.At, b.At) })
	l.play.world = newWorld(in.Fleet, time.Now().Add(-onset).Truncate(rules.Interval), o.Seed, newTruth(in.Fleet.objectives()))
	for i, r := range l.play.world.Replicas {
		r.host = o.Engines[i]
	}
	if l.play.exporter, err = newExporter(l.play.world); err != nil {
		return nil, err
	}
	l.play.exporter.withoutGPUs = o.GPUs == nil
	if l.play.am, err = newAlertmanager(rules.Alerts(groups)); err != nil {
		return nil, err
	}
	l.play.sim, err = rulesim.New(file)
	return l, err
}

// Close removes the stored series.
func (l *Live) Close() error { return l.play.sim.Close() }

// Store returns what Prometheus stored of the history, for a server to continue.
func (l *Live) Store() *rulesim.Sim { return l.play.sim }

// History plays the time up to the present, with the faults before the onset. It calls done with the share that is
// played.
func (l *Live) History(ctx context.Context, done func(share float64)) error {
	if err := l.play.remember(); err != nil {
		return err
	}
	for t := time.Duration(0); ctx.Err() == nil; t += ScrapeInterval {
		left := time.Until(l.play.world.epoch.Add(t))
		if left > 0 {
			break
		}
		for len(l.faults) > 0 && l.faults[0].At < 0 && l.play.onset+l.faults[0].At < t {
			l.play.world.Advance(l.play.onset + l.faults[0].At)
			l.faults[0].Do(l.play.world)
			l.faults = l.faults[1:]
		}
		if err := l.play.step(t); err != nil {
			return err
		}
		done(float64(t) / float64(t-left))
	}
	return ctx.Err()
}

// Begin sets the onset. Nothing happens before.
func (l *Live) Begin(onset time.Time) { l.Change(func(*World) { l.onset = onset }) }

// Change changes the world now.
func (l *Live) Change(do func(*World)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	do(l.play.world)
}

// Advance lets the world run until a time, faults included.
func (l *Live) Advance(now time.Time) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	w := l.play.world
	for !l.onset.IsZero() && len(l.faults) > 0 && !now.Before(l.onset.Add(l.faults[0].At)) {
		w.Advance(l.onset.Add(l.faults[0].At).Sub(w.epoch))
		l.faults[0].Do(w)
		l.faults = l.faults[1:]
	}
	w.Advance(now.Sub(w.epoch))
	if l.gpus == nil {
		return nil
	}
	for _, r := range w.Replicas {
		xids, err := r.GPU.tell(l.gpus)
		if err != nil {
			return err
		}
		if err := l.log(r.GPU, xids); err != nil {
			return err
		}
	}
	return nil
}

// log writes XIDs to the kernel log as the driver does.
func (l *Live) log(g *GPU, xids []int) error {
	if len(xids) == 0 {
		return nil
	}
	uptime, err := os.ReadFile("/proc/uptime")
	if err != nil {
		return err
	}
	first, _, _ := strings.Cut(string(uptime), " ")
	seconds, err := strconv.ParseFloat(first, 64)
	if err != nil {
		return fmt.Errorf("/proc/uptime: %w", err)
	}
	f, err := os.OpenFile(l.kmsg, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	for _, x := range xids {
		l.records++
		if _, err := fmt.Fprintf(f, "4,%d,%.0f,-;NVRM: Xid (PCI:%s): %d, invented by the drill\n", l.records, seconds*1e6, strings.TrimSuffix(PCI(g.index), ".0"), x); err != nil {
			return err
		}
	}
	return nil
}

// Engine returns the page that a replica's engine serves now; nil while its port is closed.
func (l *Live) Engine(replica int) http.Handler {
	l.mu.Lock()
	defer l.mu.Unlock()
	r := l.play.world.Replicas[replica]
	if r.Down || r.Gone {
		return nil
	}
	return r.page
}

// Runtime returns the runtime of a replica.
func (l *Live) Runtime(replica int) metrics.Runtime { return l.play.world.Replicas[replica].runtime }

// Objectives returns the objectives of the exporter's configuration.
func (l *Live) Objectives() []slo.Objective { return l.Incident.Fleet.objectives() }

// ExporterDown reports whether the exporter must not answer now.
func (l *Live) ExporterDown() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.play.world.ExporterDown
}

// Notify takes the alerts that fire at a time and returns what Alertmanager sends up to then.
func (l *Live) Notify(now time.Time, firing []rulesim.Alert) []Notification {
	am := l.play.am
	am.receive(now, firing)
	sent := am.sent
	am.sent = nil
	return sent
}

// Config returns the exporter's current configuration: the engines, their GPUs and the objectives.
func (l *Live) Config() ([]byte, error) {
	type target struct {
		URL    string            `yaml:"url"`
		Labels map[string]string `yaml:"labels"`
		GPUs   []string          `yaml:"gpus,omitempty"`
	}
	var config struct {
		Targets    []target        `yaml:"targets"`
		Objectives []slo.Objective `yaml:"objectives,omitempty"`
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, r := range l.play.world.Replicas {
		if r.Gone {
			continue
		}
		t := target{URL: "http://" + r.host, Labels: r.labels()}
		if l.gpus != nil {
			t.GPUs = []string{strconv.Itoa(r.GPU.index)}
		}
		config.Targets = append(config.Targets, t)
	}
	if l.Incident.Fleet.Objectives != nil { // otherwise the exporter's defaults hold
		config.Objectives = l.Objectives()
	}
	return rules.Encode(config)
}
