// Command real plays incidents on real programs: vLLM and other engines on a CPU, gateways, Prometheus and
// Alertmanager. It sends the requests itself. It compares the page, and the answer of exporter triage, with what its
// clients recorded.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// options are the flags.
type options struct {
	folder, source, checkout, out, plays, cores, compare string
	port                                                 int
	seed                                                 uint64
}

func main() {
	var o options
	cache, _ := os.UserCacheDir()
	flag.StringVar(&o.folder, "programs", cmp.Or(os.Getenv("REAL_PROGRAMS"), filepath.Join(cache, "llm-node-exporter-real")),
		"folder of the virtual environments and the model; what is not there is installed; also REAL_PROGRAMS")
	flag.StringVar(&o.source, "source", "real", "folder with the requirements")
	flag.StringVar(&o.checkout, "checkout", ".", "checkout whose exporter and rules are scored")
	flag.StringVar(&o.out, "out", "real-out", "folder for what is recorded")
	flag.StringVar(&o.plays, "plays", ".", "regular expression of the plays' names")
	flag.StringVar(&o.cores, "cores", "0,1", "cores of the engines, in order")
	flag.IntVar(&o.port, "port", 18400, "the first of fifty ports")
	flag.IntVar(&nice, "nice", 0, "priority of what is started, from -20 to 19")
	flag.IntVar(&slack, "slack", 1, "how many times as long users wait for a token before it is late, where the machine does other work")
	flag.StringVar(&o.compare, "compare", "", "instead of plays, let aiperf measure these engines: vllm, sglang")
	flag.Uint64Var(&o.seed, "seed", 1, "draws the arrivals")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, o)
	stop()
	if errors.Is(err, errMissing) {
		fmt.Println("skipped:", err)
	} else if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// run plays the selected plays.
func run(ctx context.Context, o options) error {
	pattern := o.plays
	if pattern == "." {
		pattern = ".*"
	}
	wanted, err := regexp.Compile("^(" + pattern + ")$")
	if err != nil {
		return err
	}
	p, err := find(o.folder, o.source)
	if err != nil {
		return err
	}
	if p.out, err = filepath.Abs(o.out); err != nil {
		return err
	}
	chosen, compared, environments := choose(o, wanted)
	if err := errors.Join(os.MkdirAll(p.out, 0o755), p.install(ctx, os.Stderr, environments)); err != nil {
		return err
	}
	if err := p.build(ctx, o.checkout, p.out); err != nil {
		return err
	}
	s := &Stage{Programs: p, port: o.port, known: map[string]*Past{}}
	for c := range strings.SplitSeq(o.cores, ",") {
		n, err := strconv.Atoi(c)
		if err != nil {
			return err
		}
		s.cores = append(s.cores, n)
	}
	defer func() {
		for _, e := range s.engines {
			e.stop()
		}
	}()
	if compared != nil {
		return s.compare(ctx, compared)
	}
	var wrong []string
	for _, play := range chosen {
		if ctx.Err() != nil {
			break
		}
		s.folder = filepath.Join(p.out, fmt.Sprintf("%s-%s-%d", play.Name, p.commit, o.seed))
		outcome, err := s.play(ctx, play, o.seed)
		if err != nil {
			outcome.Void = append(outcome.Void, err.Error())
		}
		s.clear()
		if err := write(filepath.Join(s.folder, "outcome.json"), outcome); err != nil {
			return err
		}
		fmt.Println(outcome.row())
		if outcome.wrong() {
			wrong = append(wrong, play.Name)
		}
	}
	if wrong != nil && ctx.Err() == nil {
		return fmt.Errorf("the page was wrong or missing in %d of %d plays: %s", len(wrong), len(chosen), strings.Join(wrong, ", "))
	}
	return ctx.Err()
}

// choose returns the selected plays or the engines to compare, and the virtual environments that these need.
func choose(o options, wanted *regexp.Regexp) (chosen []Play, compared []*server, environments []string) {
	chosen = slices.DeleteFunc(plays(), func(play Play) bool {
		return !wanted.MatchString(play.Name) || play.Asked && o.plays != play.Name
	})
	environments = []string{"vllm", "gateway", "routers", "dynamo"}
	for _, by := range []*server{vllm, sglang} {
		if slices.Contains(strings.Split(o.compare, ","), by.name) {
			compared = append(compared, by)
		}
	}
	if compared != nil {
		chosen, environments = nil, append(environments, "aiperf")
	}
	for _, by := range []*server{sglang, llama} {
		if slices.Contains(compared, by) || slices.ContainsFunc(chosen, func(p Play) bool { return p.Server == by }) {
			environments = append(environments, by.name)
		}
	}
	return chosen, compared, environments
}

// play plays an incident.
func (s *Stage) play(ctx context.Context, p Play, seed uint64) (o Outcome, err error) {
	o = Outcome{
		Play: p.Name, Says: p.Says, Commit: s.commit, Right: p.Right, Begin: time.Now().UTC(), Due: -1, Paged: -1, Triage: map[string]Said{},
	}
	o.Load[0] = loadAverage()
	defer func() { o.Load[1], o.End = loadAverage(), time.Now().UTC() }()
	if err := errors.Join(os.RemoveAll(s.folder), os.MkdirAll(s.folder, 0o755)); err != nil {
		return o, err
	}
	if p.Server == nil {
		p.Server = vllm
	}
	if p.Flags == nil {
		p.Flags = p.Server.usual
	}
	if p.Load.Rate == 0 && p.Gateway != nil {
		p.Load = shared
	} else if p.Load.Rate == 0 {
		p.Load = steady
	}
	engines := 1
	if p.Gateway == dynamo {
		engines = 0
	} else if p.Gateway != nil {
		engines = cmp.Or(p.Engines, 2)
	}
	s.flags, s.probes = p.Flags, p.Probes
	for i := engines; i < len(s.engines); i++ {
		s.engines[i].stop()
	}
	s.engines = s.engines[:min(len(s.engines), engines)]
	for i := range engines {
		if err := s.serve(ctx, i, p.Server, p.Flags); err != nil {
			return o, err
		}
	}
	ctx, stop := context.WithCancel(ctx)
	defer s.loops.Wait()
	defer stop()
	if p.Gateway != nil {
		if err := s.connect(ctx, p.Gateway); err != nil {
			return o, err
		}
	}
	if err := errors.Join(s.see(p), s.warm(ctx, p.Load, seed)); err != nil {
		return o, err
	}
	if engines > 0 {
		slow = s.measure(ctx, p.Load, seed)
	} else {
		slow = 1
	}
	o.Slow = slow
	if err := s.watch(ctx); err != nil {
		return o, err
	}
	p.Load.Rate *= float64(max(1, engines)) / float64(slow)
	s.client = NewClient(s.entrance(), key, seed)
	s.client.Set(p.Load)
	ended := make(chan struct{})
	go func() { s.client.Run(ctx); close(ended) }()
	err = s.act(ctx, p, &o)
	stop()
	records := s.client.Records()
	s.client.Leave()
	<-ended
	o.judge(p, records, s.told())
	return o, errors.Join(err, write(filepath.Join(s.folder, "requests.json"), records))
}

// see starts separate proxies between the exporter and the engines, if the play needs them.
func (s *Stage) see(p Play) error {
	for i, e := range s.engines {
		if !p.Eyes {
			break
		}
		w, err := NewWay(local(s.port+25+i), local(e.port))
		if err != nil {
			return err
		}
		s.eyes = append(s.eyes, w)
	}
	return nil
}

// act runs the steps of a play: the healthy minutes, the history, the fault, triage, and the page.
func (s *Stage) act(ctx context.Context, p Play, o *Outcome) error {
	if err := sleep(ctx, 10*time.Second); err != nil { // the first requests warm the caches
		return err
	}
	for _, step := range []func(context.Context) error{s.learn, s.record} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	if err := sleep(ctx, quiet); err != nil {
		return err
	}
	s.keep(ctx, "before")
	s.compareRival(ctx, "before", o)
	o.Healthy = s.alerts(ctx)
	o.Fault = s.client.Now()
	if err := p.Fault(ctx, s); err != nil {
		return err
	}
	if now := s.client.Now(); now > o.Fault+1 { // the play has prepared its fault first
		o.Fault = now
	}
	defer s.keepClues(ctx, o.Fault)
	fmt.Printf("%s %s: %s\n", time.Now().UTC().Format(time.TimeOnly), p.Name, p.Says)
	if p.Then != nil {
		if err := s.paged(ctx, o.Fault); err != nil {
			return err
		}
		if err := errors.Join(sleep(ctx, settled), p.Then(ctx, s)); err != nil {
			return err
		}
		o.Then = s.client.Now() - o.Fault
	}
	lasts, asks, asked := cmp.Or(p.Lasts, 8*time.Minute).Seconds(), cmp.Or(s.asks, 150*time.Second).Seconds(), false
	for now := 0.0; now < lasts; now = s.client.Now() - o.Fault - o.Then {
		if err := sleep(ctx, time.Second); err != nil {
			return err
		}
		page := first(s.told(), o.Fault+o.Then)
		if !asked && (page != nil && s.asks == 0 || now > asks) {
			asked = true
			s.ask(ctx, p, o)
		}
		if page != nil && asked {
			lasts = min(lasts, page.At-o.Fault-o.Then+60)
		}
	}
	return nil
}

// paged waits for a page, for at most a quarter of an hour.
func (s *Stage) paged(ctx context.Context, fault float64) error {
	for first(s.told(), fault) == nil {
		if s.client.Now() > fault+900 {
			return errors.New("nobody was paged for the first fault")
		}
		if err := sleep(ctx, time.Second); err != nil {
			return err
		}
	}
	return nil
}

// ask runs exporter triage twice: once with the exporter alone, and once with Prometheus.
func (s *Stage) ask(ctx context.Context, p Play, o *Outcome) {
	at := s.client.Now() - o.Fault - o.Then
	var wait sync.WaitGroup
	wait.Go(func() { s.keep(ctx, "asked") })
	var mu sync.Mutex
	for name, args := range map[string][]string{"alone": nil, "prometheus": {"--prometheus=http://" + local(s.port+40)}} {
		wait.Go(func() {
			verdict, text := s.triage(ctx, args...)
			said := Said{At: at, First: firstLine(text), Verdict: verdict}
			for _, b := range p.Right {
				said.Right = said.Right || strings.HasPrefix(said.First, "Look first at: "+string(b)+".")
			}
			_ = os.WriteFile(filepath.Join(s.folder, "triage-"+name+".txt"), []byte(text), 0o600)
			mu.Lock()
			defer mu.Unlock()
			o.Triage[name] = said
		})
	}
	wait.Wait()
	s.compareRival(ctx, "asked", o)
}

// compareRival runs vllm-doctor, if it is installed and the engines are vLLM.
func (s *Stage) compareRival(ctx context.Context, moment string, o *Outcome) {
	if s.doctorPath == "" || len(s.engines) == 0 || s.engines[0].server != vllm {
		return
	}
	if o.Rival == nil {
		o.Rival = map[string][]string{}
	}
	o.Rival[moment+", page"] = s.rival(ctx, s.engines[0].url()+"/metrics")
	o.Rival[moment+", Prometheus"] = s.rival(ctx, "--since=5m", "http://"+local(s.port+40))
}
