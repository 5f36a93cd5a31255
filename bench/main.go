// Command bench measures the exporter and its peers on the same metrics pages in the same run, and writes
// docs/performance.md. Run it with make bench-peers.
//
//	main     the contenders and the measurement      main.go
//	process  CPU, memory and allocations             process.go
//	pages    engines and their metrics pages         pages.go
//	parsers  peers that are libraries                parsers.go
//	binary   the parts of the exporter's binary      binary.go
//	report   docs/performance.md                     report.go
package main

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/llm-node-exporter/llm-node-exporter/internal/fakenvml"
)

// paced is the number of scrapes over which CPU and memory are measured.
const paced = 10

// contender is a program that reads the metrics pages of engines.
type contender struct {
	name    string
	start   func(dir string, n *node) (*process, error)
	self    string // path at which the program reports its own allocations
	scrapes bool   // the program scrapes by itself, without a request
}

// result has the resources that one contender needed.
type result struct {
	name                string
	cpu                 time.Duration // per scrape of all engines
	allocations         float64       // objects per scrape
	resident, anonymous int64         // bytes
	p50, p99            time.Duration // durations of a scrape; 0 if the program scrapes by itself
}

func main() {
	exporter := flag.String("exporter", "bin/exporter", "The exporter to measure.")
	parser := flag.String("parser", "", "Serve targets through this parser: the benchmark starts itself with it.")
	address := flag.String("address", "", "Where -parser listens.")
	flag.Parse()
	work := func() error { return run(*exporter) }
	if *parser != "" {
		work = func() error { return serveParser(*parser, *address, flag.Args()) }
	}
	if err := work(); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(exporter string) error {
	dir, err := os.MkdirTemp("", "bench")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	pages, err := mixed()
	if err != nil {
		return err
	}
	library, err := fakenvml.Build(dir)
	if err != nil {
		return err
	}
	if _, err := fakenvml.NewState(library, 8, fakenvml.H100); err != nil {
		return err
	}
	sink := httptest.NewServer(http.HandlerFunc(discard))
	defer sink.Close()
	withoutGPUs := exporterWith("exporter", exporter, "--no-collector.gpu")
	withGPUs := exporterWith("exporter with 8 GPUs", exporter, "--gpu.nvml-library="+library, "--gpu.kmsg=none")
	peers := []contender{parserOf("fetch-only"), parserOf("vm-parser"), parserOf("textparse"), parserOf("expfmt"), prometheus()}
	vmagent := os.Getenv("VMAGENT")
	if vmagent != "" {
		peers = append(peers, vmagentAt(vmagent, sink.URL))
	}

	var r report
	for _, node := range []struct {
		engines int
		what    string
		pages   [][]byte
	}{{1, "", pages[:1]}, {8, "vLLM with one rank each", pages[:1]}, {8, "mixed", pages}, {64, "mixed", pages}} {
		contenders := append([]contender{withoutGPUs}, peers...)
		if node.engines == 8 {
			contenders = append([]contender{withoutGPUs, withGPUs}, peers...)
		}
		n := newNode(node.engines, node.pages...)
		t := table{Engines: node.engines, What: node.what, Samples: n.samples}
		for _, c := range contenders {
			measured, err := c.measure(dir, n)
			if err != nil {
				return err
			}
			t.results = append(t.results, measured)
		}
		n.close()
		r.Tables = append(r.Tables, t)
	}
	for _, c := range []contender{withoutGPUs, parserOf("textparse")} {
		s, err := slopesOf(c, dir, pages[0])
		if err != nil {
			return err
		}
		r.Slopes = append(r.Slopes, s)
	}
	parts, err := sizes(dir)
	if err != nil {
		return err
	}
	for _, p := range parts {
		fmt.Printf("%.1f MiB of the binary: %s: %s\n", mebibytes(p.Bytes), p.Name, p.Why)
	}
	return r.write(exporter, vmagent)
}

func exporterWith(name, binary string, args ...string) contender {
	return contender{name: name, self: "/metrics", start: func(_ string, n *node) (*process, error) {
		address, err := freeAddress()
		if err != nil {
			return nil, err
		}
		command := append([]string{binary, "--web.listen-address=" + address, "--discovery=none", "--log.level=error"}, args...)
		for _, target := range n.targets {
			command = append(command, "--engine.target=http://"+target)
		}
		return start(address, "/-/ready", command...)
	}}
}

func parserOf(name string) contender {
	return contender{name: name, self: "/self", start: func(_ string, n *node) (*process, error) {
		address, err := freeAddress()
		if err != nil {
			return nil, err
		}
		self, err := os.Executable()
		if err != nil {
			return nil, err
		}
		return start(address, "/self", append([]string{self, "-parser=" + name, "-address=" + address}, n.targets...)...)
	}}
}

func prometheus() contender {
	return contender{name: "Prometheus", self: "/metrics", scrapes: true, start: func(dir string, n *node) (*process, error) {
		return startScraper(dir, n, "/-/ready", func(address, config, data string) []string {
			return []string{
				"prometheus", "--web.listen-address=" + address, "--config.file=" + config, "--storage.tsdb.path=" + data,
				"--log.level=error",
			}
		})
	}}
}

func vmagentAt(binary, sink string) contender {
	return contender{name: "vmagent", self: "/metrics", scrapes: true, start: func(dir string, n *node) (*process, error) {
		return startScraper(dir, n, "/metrics", func(address, config, data string) []string {
			return []string{
				binary, "-httpListenAddr=" + address, "-promscrape.config=" + config, "-remoteWrite.tmpDataPath=" + data,
				"-remoteWrite.url=" + sink,
				"-loggerLevel=ERROR",
			}
		})
	}}
}

// startScraper starts a program that scrapes on its own schedule. It writes a configuration that both Prometheus and
// vmagent can read.
func startScraper(dir string, n *node, ready string, command func(address, config, data string) []string) (*process, error) {
	address, err := freeAddress()
	if err != nil {
		return nil, err
	}
	data, err := os.MkdirTemp(dir, "data")
	if err != nil {
		return nil, err
	}
	config := filepath.Join(data, "scrape.yaml")
	text := fmt.Sprintf("global: {scrape_interval: %s, scrape_timeout: %[1]s}\nscrape_configs: [{job_name: engines, static_configs: "+
		"[{targets: ['%s']}]}]\n",
		n.pause, strings.Join(n.targets, "', '"))
	if err := os.WriteFile(config, []byte(text), 0o644); err != nil {
		return nil, err
	}
	return start(address, ready, command(address, config, data)...)
}

// measure runs a contender on a node.
func (c contender) measure(dir string, n *node) (r result, err error) {
	fmt.Fprintf(os.Stderr, "%s: %d engines, %d samples\n", c.name, len(n.targets), n.samples)
	r.name = c.name
	p, err := c.start(dir, n)
	if err != nil {
		return r, err
	}
	defer p.stop()
	// Wait until the program has found its engines.
	for begin := n.reads.Load(); c.scrapes && n.reads.Load() < begin+int64(len(n.targets)) && time.Since(p.began) < 20*time.Second; {
		time.Sleep(n.pause)
	}
	if _, err = c.pace(p, n, 4); err != nil { // lets its buffers grow
		return r, err
	}
	allocated, err := p.allocations(c.self)
	if err != nil {
		return r, err
	}
	if r.cpu, err = c.pace(p, n, paced); err != nil {
		return r, err
	}
	if r.resident, r.anonymous, err = p.memory(); err != nil {
		return r, err
	}
	since, err := p.allocations(c.self)
	if err != nil {
		return r, err
	}
	r.allocations = (since - allocated) / paced
	if c.scrapes {
		return r, nil
	}
	var took []time.Duration
	for begin := time.Now(); len(took) < 100 && (len(took) == 0 || time.Since(begin) < 3*time.Second); {
		began := time.Now()
		if err := p.scrape(); err != nil {
			return r, err
		}
		took = append(took, time.Since(began))
	}
	slices.Sort(took)
	r.p50, r.p99 = took[len(took)/2], took[len(took)*99/100]
	return r, nil
}

// pace waits until all engines have been scraped several times, once per pause, and returns the CPU time per scrape.
func (c contender) pace(p *process, n *node, scrapes int) (time.Duration, error) {
	reads := n.reads.Load()
	before, err := p.cpu()
	if err != nil {
		return 0, err
	}
	for range scrapes {
		next := time.After(n.pause)
		if !c.scrapes {
			if err := p.scrape(); err != nil {
				return 0, err
			}
		}
		<-next
	}
	after, err := p.cpu()
	happened := float64(n.reads.Load()-reads) / float64(len(n.targets))
	if err == nil && happened < float64(scrapes)/2 {
		err = fmt.Errorf("%s read each engine %.1f times in %s instead of %d times: is this machine too busy?", c.name, happened,
			time.Duration(scrapes)*n.pause, scrapes)
	}
	return time.Duration(float64(after-before) / happened), err
}

func (p *process) scrape() error {
	var page bytes.Buffer
	return read(context.Background(), "http://"+p.address+"/metrics", &page)
}

// slope describes how the CPU time of a scrape grows with the size of a metrics page.
type slope struct {
	Name             string
	Mapped, Unmapped line
}

// line is a straight line fitted to costs by the number of samples.
type line struct {
	samples []int
	costs   []time.Duration
}

// PerSample returns the slope of the line, which is fitted by least squares.
func (l line) PerSample() time.Duration {
	var x, y, xx, xy float64
	for i, cost := range l.costs {
		s, c := float64(l.samples[i]), float64(cost)
		x, y, xx, xy = x+s, y+c, xx+s*s, xy+s*c
	}
	n := float64(len(l.costs))
	return time.Duration((n*xy - x*y) / (n*xx - x*x))
}

// Points returns the measured costs as text.
func (l line) Points() string {
	b := make([]string, 0, len(l.costs))
	for i, cost := range l.costs {
		b = append(b, fmt.Sprintf("%d: %s", l.samples[i], milliseconds(cost)))
	}
	return strings.Join(b, ", ")
}

// slopesOf measures a contender on one engine whose metrics page grows: first by mapped series, then by unmapped
// series.
func slopesOf(c contender, dir string, page []byte) (slope, error) {
	s := slope{Name: c.name}
	for _, step := range []struct {
		on   *line
		page []byte
	}{
		{&s.Mapped, page},
		{&s.Mapped, ranks(page, 16)},
		{&s.Mapped, ranks(page, 32)},
		{&s.Mapped, ranks(page, 64)},
		{&s.Unmapped, page},
		{&s.Unmapped, withUnmapped(page, 5000)},
		{&s.Unmapped, withUnmapped(page, 10000)},
		{&s.Unmapped, withUnmapped(page, 20000)},
	} {
		n := newNode(1, step.page)
		cost, err := c.least(dir, n)
		n.close()
		if err != nil {
			return s, err
		}
		step.on.samples, step.on.costs = append(step.on.samples, n.samples), append(step.on.costs, cost)
	}
	return s, nil
}

// least returns the CPU time of a scrape in the best of five rounds, because other programs on this machine can only
// increase the time.
func (c contender) least(dir string, n *node) (time.Duration, error) {
	p, err := c.start(dir, n)
	if err != nil {
		return 0, err
	}
	defer p.stop()
	var rounds []time.Duration
	for range 6 {
		before, err := p.cpu()
		if err != nil {
			return 0, err
		}
		const scrapes = 8
		for range scrapes {
			if err := p.scrape(); err != nil {
				return 0, err
			}
		}
		after, err := p.cpu()
		if err != nil {
			return 0, err
		}
		rounds = append(rounds, (after-before)/scrapes)
	}
	return slices.Min(rounds[1:]), nil
}
