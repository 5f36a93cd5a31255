package discovery

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/llm-node-exporter/llm-node-exporter/collectors/engine"
	"github.com/llm-node-exporter/llm-node-exporter/collectors/gpu"
	"github.com/llm-node-exporter/llm-node-exporter/internal/e2e"
	"github.com/llm-node-exporter/llm-node-exporter/internal/golden"
	"github.com/llm-node-exporter/llm-node-exporter/internal/kube"
)

// said is a source whose reports a test writes.
type said chan struct {
	places []Place
	err    error
}

func (said) Name() string { return "pods" }

func (said) Departed() map[kube.PodName]bool {
	return map[kube.PodName]bool{{Namespace: "llm", Name: "gone"}: true}
}

func (s said) Run(ctx context.Context, report func([]Place, error)) {
	for {
		select {
		case <-ctx.Done():
			return
		case say := <-s:
			report(say.places, say.err)
		}
	}
}

func (s said) say(err error, places ...Place) {
	s <- struct {
		places []Place
		err    error
	}{places, err}
}

func at(url string) Place { return Place{Target: engine.TargetConfig{URL: url}} }

// TestPlaceBecomesTarget checks that engines are read, other services are not, and a source that fails removes no
// target.
func TestPlaceBecomesTarget(t *testing.T) {
	one, other := vllm(t), answering(t, "# TYPE up gauge\nup 1\n")
	dead := "http://127.0.0.1:1"
	server := func(url string) string { return strings.TrimPrefix(url, "http://") }
	source, log := make(said), &lines{}
	e := find(t, source, log)

	asleep := at("http://127.0.0.1:2")
	asleep.LeaveAlone = "it sleeps"
	declared := at("http://127.0.0.1:3")
	declared.Declared = true
	source.say(nil, at(one.URL), at(other.URL), at(dead), asleep, declared)
	e.until(t, server(one.URL), server(declared.Target.URL))
	for state, want := range map[State]float64{Read: 2, NoEngine: 1, Silent: 1, LeftAlone: 1} {
		if got := metric(t, e, `llm_exporter_discovery_places{source="pods",state="`+string(state)+`"}`); got != want {
			t.Errorf("%s: %v places, want %v", state, got, want)
		}
	}
	golden.Compare(t, "testdata/places.prom", golden.Page(t, e))
	if seen, err := e.Places(); err != nil || len(seen) != 3 || seen[0].State != NoEngine || seen[0].Why != "unknown_engine" {
		t.Errorf("for a person: %+v %v", seen, err)
	}

	source.say(errors.New("no answer"))
	eventually(t, func() bool { return metric(t, e, `llm_exporter_discovery_up{reason="error",source="pods"}`) == 0 },
		func() any { return "not down" })
	e.until(t, server(one.URL), server(declared.Target.URL))
	eventually(t, func() bool { return strings.Contains(log.String(), "no answer") }, func() any { return log })

	source.say(nil, at(other.URL))
	e.until(t)
	if got := metric(t, e, `llm_exporter_discovery_up{reason="",source="pods"}`); got != 1 {
		t.Errorf("up is %v", got)
	}
}

// TestLeftAloneNoMore checks that a place is probed once nothing forbids it any more, for example when the other
// pod that named its port is gone.
func TestLeftAloneNoMore(t *testing.T) {
	one := vllm(t)
	source := make(said)
	e := find(t, source, &lines{})
	contested := at(one.URL)
	contested.LeaveAlone = "another pod names it"
	source.say(nil, contested)
	eventually(t, func() bool { seen, _ := e.Places(); return len(seen) == 1 && seen[0].State == LeftAlone },
		func() any { return "not left alone" })
	source.say(nil, at(one.URL))
	e.until(t, strings.TrimPrefix(one.URL, "http://"))
}

// TestTooManyPlaces checks that the number of places that a node's pods can make the exporter read is limited, and
// logged once.
func TestTooManyPlaces(t *testing.T) {
	var places []Place
	for i := range maxPlaces + 100 {
		places = append(places, Place{Target: engine.TargetConfig{URL: fmt.Sprintf("http://10.0.%d.%d:8000", i/250, i%250)}, Declared: true})
	}
	source, log := make(said), &lines{}
	e := find(t, source, log)
	for range 3 {
		source.say(nil, places...)
	}
	eventually(t, func() bool { return len(e.servers()) == maxPlaces }, func() any { return len(e.servers()) })
	if n := strings.Count(log.String(), "too many addresses"); n != 1 {
		t.Errorf("said %d times", n)
	}
}

// TestRetries checks that an engine that is still loading is found soon after it listens, that other servers are
// probed rarely, and that a found engine is not probed again.
func TestRetries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		asked := map[string]int{}
		answer := map[string]engine.Engine{
			"http://loads": {Reason: "unreachable"}, "http://other": {Reason: "unknown_engine"},
			"http://engine": {},
		}
		var targets []engine.TargetConfig
		source := make(said)
		f := New(Options{
			Source: source, Logger: slog.New(slog.DiscardHandler),
			Probe: func(_ context.Context, target engine.TargetConfig) (engine.Engine, error) {
				mu.Lock()
				defer mu.Unlock()
				asked[target.URL]++
				return answer[target.URL], nil
			},
			Found: func(all []engine.TargetConfig) {
				mu.Lock()
				defer mu.Unlock()
				targets = all
			},
		})
		ctx, cancel := context.WithCancel(t.Context())
		go f.Run(ctx)
		defer cancel()
		source.say(nil, at("http://loads"), at("http://other"), at("http://engine"))
		time.Sleep(10*time.Minute - time.Second)
		synctest.Wait()
		mu.Lock()
		if asked["http://loads"] != 40 || asked["http://other"] != 2 || asked["http://engine"] != 1 || len(targets) != 1 {
			t.Errorf("asked %v, found %v", asked, targets)
		}
		answer["http://loads"] = engine.Engine{}
		mu.Unlock()
		time.Sleep(retrySilent)
		synctest.Wait()
		mu.Lock()
		defer mu.Unlock()
		if len(targets) != 2 {
			t.Errorf("found %v", targets)
		}
	})
}

// TestSilentPodsDelayNobody checks 56 GPU pods whose ports never answer, not even with a refusal: they delay
// neither a new engine nor an engine that has just loaded its model.
func TestSilentPodsDelayNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		started := time.Now()
		var mu sync.Mutex
		loaded := map[string]time.Duration{"http://new": 0, "http://loads": 20 * time.Minute}
		found := map[string]time.Duration{}
		source := make(said)
		f := New(Options{
			Source: source, Logger: slog.New(slog.DiscardHandler),
			Probe: func(ctx context.Context, target engine.TargetConfig) (engine.Engine, error) {
				if at, ok := loaded[target.URL]; ok && time.Since(started) >= at {
					return engine.Engine{}, nil
				}
				<-ctx.Done()
				return engine.Engine{Reason: "timeout"}, nil
			},
			Found: func(all []engine.TargetConfig) {
				mu.Lock()
				defer mu.Unlock()
				for _, target := range all {
					if found[target.URL] == 0 {
						found[target.URL] = time.Since(started)
					}
				}
			},
		})
		ctx, cancel := context.WithCancel(t.Context())
		go f.Run(ctx)
		defer cancel()
		pod := func(url, name string) Place {
			p := at(url)
			p.Target.Labels = map[string]string{"pod": name}
			return p
		}
		var silent []Place
		for i := range 56 {
			for _, port := range usualPorts {
				silent = append(silent, pod(fmt.Sprintf("http://10.0.0.%d:%d", i, port), fmt.Sprint(i)))
			}
		}
		source.say(nil, slices.Concat(silent, []Place{pod("http://loads", "loads")})...)
		const appears = 10*time.Minute + 7*time.Second
		time.Sleep(appears)
		source.say(nil, slices.Concat(silent, []Place{pod("http://loads", "loads"), pod("http://new", "new")})...)
		time.Sleep(15 * time.Minute)
		synctest.Wait()
		mu.Lock()
		defer mu.Unlock()
		if took := found["http://new"] - appears; took < 0 || took > 2*probeTimeout {
			t.Errorf("a new engine was found after %s", took)
		}
		if took := found["http://loads"] - loaded["http://loads"]; took < 0 || took > 45*time.Second {
			t.Errorf("an engine that loaded was found after %s", took)
		}
	})
}

// replies are the metrics pages of simulated engines by address.
type replies map[string]func() string

func (r replies) RoundTrip(req *http.Request) (*http.Response, error) {
	w := httptest.NewRecorder()
	if page := r[req.URL.Host](); page == "" || req.URL.Path != "/metrics" {
		http.NotFound(w, req)
	} else {
		io.WriteString(w, page)
	}
	return w.Result(), nil
}

// TestEnginesToldApartLater checks two idle addresses of one container that report too little to be distinguished.
// Requests show whether both addresses are one engine, and a place that was left out is read once the other place
// is gone.
func TestEnginesToldApartLater(t *testing.T) {
	for _, c := range []struct {
		name string
		one  bool
	}{{"one engine", true}, {"two engines", false}} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var mu sync.Mutex
				var urls []string
				done := map[string]int{}
				set := func(a, b int) {
					mu.Lock()
					defer mu.Unlock()
					done["a"], done["b"] = a, b
				}
				page := func(host, of string) func() string {
					return func() string {
						mu.Lock()
						defer mu.Unlock()
						if done[of] > 0 {
							done[of]++ // it works
						}
						if done[host] < 0 {
							return "" // the engine hangs, or restarts
						}
						return fmt.Sprintf("# TYPE llamacpp:prompt_tokens_total counter\nllamacpp:prompt_tokens_total %d\n", done[of])
					}
				}
				other := map[bool]string{true: "a", false: "b"}[c.one]
				network := replies{"a": page("a", "a"), "b": page("b", other)}
				place := func(host string) Place {
					p := at("http://" + host)
					p.Target.Transport, p.Target.Labels = network, map[string]string{"pod": "p"}
					return p
				}
				source := make(said)
				collector, err := engine.New(engine.Config{UserAgent: "test", Log: slog.New(slog.DiscardHandler)})
				if err != nil {
					t.Fatal(err)
				}
				f := New(Options{
					Source: source, Logger: slog.New(slog.DiscardHandler), Probe: collector.Probe,
					Found: func(all []engine.TargetConfig) {
						mu.Lock()
						defer mu.Unlock()
						urls = nil
						for _, target := range all {
							urls = append(urls, target.URL)
						}
					},
				})
				ctx, cancel := context.WithCancel(t.Context())
				go f.Run(ctx)
				defer cancel()
				found := func(want ...string) {
					t.Helper()
					synctest.Wait()
					mu.Lock()
					defer mu.Unlock()
					if !slices.Equal(urls, want) {
						t.Errorf("found %q, want %q", urls, want)
					}
				}
				source.say(nil, place("a"), place("b"))
				found("http://a", "http://b")
				set(1000, 7000)
				time.Sleep(2 * time.Minute)
				if !c.one {
					found("http://a", "http://b")
					return
				}
				found("http://a")
				if seen, _ := f.Places(); len(seen) != 1 || !strings.Contains(seen[0].Why, "http://a") {
					t.Errorf("for a person: %+v", seen)
				}
				set(-1, 7000)
				time.Sleep(3 * time.Minute)
				found("http://a") // the place that was left out stays left out
				set(5000, 7000)
				source.say(nil, place("b"))
				found("http://b")
			})
		})
	}
}

// TestMain serves a metrics page in place of the tests in the processes that listener starts.
func TestMain(m *testing.M) {
	if address := os.Getenv("LISTEN_ON"); address != "" {
		page := "# TYPE vllm:num_requests_running gauge\nvllm:num_requests_running{engine=\"0\",model_name=\"m\"} 1\n"
		panic(http.ListenAndServe(address, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path != "/metrics" {
				http.NotFound(w, r)
				return
			}
			io.WriteString(w, page)
		})))
	}
	m.Run()
}

// listener starts a process that serves an engine's metrics page.
func listener(t *testing.T) (address string, pid int) {
	t.Helper()
	address = e2e.Address(t) // not an ephemeral port, because an engine's port is chosen
	// The listener's parent ends, so that the listener is not related to this test or to other running tests that
	// listen.
	parent := exec.Command("sh", "-c", `"$0" >/dev/null 2>&1 & echo $!`, os.Args[0])
	parent.Env = append(os.Environ(), "LISTEN_ON="+address)
	said, err := parent.Output()
	if err != nil {
		t.Fatal(err)
	}
	if pid, err = strconv.Atoi(strings.TrimSpace(string(said))); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { syscall.Kill(pid, syscall.SIGKILL) })
	return address, pid
}

// TestListenerOfGPUProcess checks that a process is found through the real /proc if it listens on a chosen port and
// NVML names it as a user of a GPU. A process that has ended is shown as down for a while.
func TestListenerOfGPUProcess(t *testing.T) {
	address, pid := listener(t)
	held := func() []gpu.Process { return []gpu.Process{{PID: pid}} }
	e := find(t, fast{NewProcesses("/proc", held)}, &lines{})
	e.until(t, address)

	processes, now := NewProcesses("/proc", held), time.Now()
	processes.look(held(), now)
	if got := processes.look(nil, now); len(got) != 1 {
		t.Errorf("right after its end: %v", got)
	}
	if got := processes.look(nil, now.Add(processMemory+time.Second)); len(got) != 0 {
		t.Errorf("long after its end: %v", got)
	}
}

// fast scans more often than a node needs.
type fast struct{ *Processes }

func (f fast) Run(ctx context.Context, report func([]Place, error)) {
	for ctx.Err() == nil {
		report(f.look(f.running(), time.Now()), nil)
		time.Sleep(50 * time.Millisecond)
	}
}
