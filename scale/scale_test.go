// Package scale plays incidents of a thousand models into distributed stores, kills parts of them, and compares the
// pages with one Prometheus' pages.
package scale

import (
	"encoding/json"
	"flag"
	"os"
	"runtime"
	"testing"
	"time"
)

var (
	models        = flag.Int("models", 1000, "models, one engine each")
	clusters      = flag.Int("clusters", 4, "tenants that share the models")
	sick          = flag.Int("sick", 60, "models that have a fault")
	latest        = flag.Duration("latest", 5*time.Minute, "how much later than that of one Prometheus a page may come")
	reference     = flag.String("reference", "", "keep the pages of one Prometheus in this file, or read them from it")
	lasts         = flag.Duration("lasts", 11*time.Minute, "how long samples are written")
	onset         = flag.Duration("onset", 3*time.Minute, "when the first models have a fault; the last do three minutes later")
	dies          = flag.Duration("dies", 4*time.Minute+30*time.Second, "when parts of the store are killed; 0 for never")
	keep          = flag.String("keep", "", "keep logs and data in this folder")
	mimirFlags    = flag.String("mimir", "", "more flags of Mimir")
	latencyOffset = flag.Duration("latency-offset", time.Second, "how far behind the clock vmselect answers")
	vmalertFlags  = flag.String("vmalert", "", "more flags of vmalert")
)

// stores lists the tested stores, and the programs that each needs.
var stores = []struct {
	name  string
	new   func(t *testing.T, p *pager) *store
	needs []string
}{
	{"Mimir", newMimir, []string{"mimir"}},
	{"VictoriaMetrics", newVictoria, []string{"vmstorage", "vminsert", "vmselect", "vmalert"}},
}

// TestStores checks that a distributed store pages for each model for which one Prometheus pages, and that no alert
// pages twice. In the incident, a part that keeps samples and a part that evaluates rules are killed. The test measures
// how much later the store pages. Each store has the machine to itself.
func TestStores(t *testing.T) {
	if os.Getenv("SCALE") == "" {
		t.Skip("SCALE=1 runs whole clusters, which takes half an hour and most of a machine")
	}
	missing := map[string]string{}
	for _, s := range stores {
		for _, name := range s.needs {
			if _, err := binary(name); err != nil {
				missing[s.name] = err.Error()
			}
		}
	}
	if len(missing) == len(stores) {
		t.Skip("there is no store to test: ", missing)
	}
	want := map[string]*page{}
	if content, err := os.ReadFile(*reference); err == nil {
		if err := json.Unmarshal(content, &want); err != nil {
			t.Fatal(err)
		}
	} else if !t.Run("Prometheus", func(t *testing.T) { want = run(t, newPrometheus) }) {
		return
	}
	if content, err := json.Marshal(want); err == nil && *reference != "" {
		_ = os.WriteFile(*reference, content, 0o600)
	}
	for _, s := range stores {
		t.Run(s.name, func(t *testing.T) {
			if why := missing[s.name]; why != "" {
				t.Skip(why)
			}
			compare(t, want, run(t, s.new))
		})
	}
}

// run plays the incidents into a store, and returns its pages.
func run(t *testing.T, newStore func(t *testing.T, p *pager) *store) map[string]*page {
	services := fleet(t)
	p := newPager(t)
	tested := newStore(t, p)
	g := &generator{services: services, writers: map[string]*writer{}}
	for _, tenant := range tenants() {
		g.writers[tenant] = newWriter(t, tested.write(tenant), tenant)
	}
	idle := idleSeconds()
	began := time.Now().Truncate(time.Second).Add(time.Second)
	p.watch(began)
	alive := *dies > 0
	g.run(t, began, *lasts, func(since time.Duration) {
		if alive && since >= *dies {
			alive = false
			for _, p := range tested.dies {
				cpu, peak := p.usage()
				t.Logf("%s: %s is killed; until then %.0f s of CPU, at most %s", since.Round(time.Second), p.name, cpu, peak)
				p.kill()
			}
		}
	})
	for tenant, w := range g.writers {
		if why := w.refused.Load(); why != nil {
			t.Errorf("%s: samples are refused: %s", tenant, *why)
		}
		if n := len(w.queue); n > 3 {
			t.Errorf("%s: %d requests wait after %d, of which %d had to be repeated", tenant, n, w.sent.Load(), w.tries.Load())
		}
	}
	t.Logf("%d models, %.0f samples a second; of the machine's %d cores, %.2f were idle", len(services), float64(g.samples)/lasts.Seconds(),
		runtime.NumCPU(), (idleSeconds()-idle)/lasts.Seconds())
	tested.report(t, *lasts)
	return p.heard(t)
}

// report prints the cost of each program of a store.
func (s *store) report(t *testing.T, lasts time.Duration) {
	for _, p := range s.programs {
		if cpu, peak := p.usage(); cpu > 0 {
			t.Logf("%-14s %6.1f s of CPU, %.2f cores, at most %s", p.name, cpu, cpu/lasts.Seconds(), peak)
		}
	}
	for _, p := range s.rulers {
		select {
		case <-p.ended:
			continue
		default:
		}
		t.Logf("%-14s rules took %.1f s, %.2f s a minute; %.0f evaluations failed, %.0f were missed", p.name, p.sum(s.seconds),
			p.sum(s.seconds)/lasts.Minutes(), p.sum(s.failures), p.sum(s.missed))
	}
}

// fleet returns the models of all tenants. Each sick model has one fault, at one of four times.
func fleet(t *testing.T) []*service {
	names := tenants()
	rest := *lasts - *onset + time.Minute
	well := record(t, *lasts, nil)
	var tapes []*tape
	for _, f := range faults {
		tapes = append(tapes, record(t, rest, f.do))
	}
	var all []*service
	every := max(1, *models/max(1, *sick))
	for i := range *models {
		from, skip := well, i%10
		if n := i / every; i%every == 0 && n < *sick {
			starts := *onset + time.Duration(n/len(faults)%4)*time.Minute
			from, skip = tapes[n%len(faults)], int((calm-starts)/scrapeEvery)
		}
		all = append(all, newService(i, names[i*len(names) / *models], from, skip))
	}
	t.Logf("%d series of each engine", len(well.series))
	return all
}
