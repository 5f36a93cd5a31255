package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"syscall"
	"time"

	"github.com/llm-node-exporter/llm-node-exporter/rules"
)

// Play is an incident on real engines.
type Play struct {
	Name    string
	Says    string                                    // description of the incident
	Right   []rules.Branch                            // branches of which the page must name one; nil if no page must be sent
	Server  *server                                   // server of the model; default: vllm
	Gateway *front                                    // gateway in front of the engines; default: one engine without a gateway
	Engines int                                       // number of engines behind the gateway; default: two
	Probes  bool                                      // the exporter also reads the gateway
	Eyes    bool                                      // the exporter has its own Ways to the engines
	Flags   []string                                  // flags of the engines; default: the server's usual flags
	Load    Load                                      // load before the fault; default: steady, once for each engine
	Fault   func(ctx context.Context, s *Stage) error // starts the fault, which begins when this function returns
	Then    func(ctx context.Context, s *Stage) error // starts a second fault, long after the page; the next page is scored
	Lasts   time.Duration                             // longest duration, by default eight minutes; the play ends a minute after the page
	Asked   bool                                      // played only if its name is given
}

var (
	usual  = []string{"--max-num-seqs", "2"}
	room   = []string{"--max-num-seqs", "6"}
	steady = Load{Rate: 0.8, Shared: 1024, Own: 24, Output: 40}
	shared = Load{Rate: 0.5, Shared: 1024, Own: 24, Output: 20} // for each of two engines, which may share one core
	light  = Load{Rate: 0.4, Own: 64, Output: 20}               // for plays in which the load does not matter
	brief  = Load{Rate: 1.2, Own: 64, Output: 10}               // for plays in which the number of requests matters
	busy   = Load{Rate: 2, Own: 100, Output: 8}                 // two engines can serve this load with room to spare, but one engine cannot
	mocked = Load{Rate: 2, Own: 100, Output: 40}
)

// change returns a fault in which clients change their load.
func change(with func(*Load)) func(context.Context, *Stage) error {
	return func(_ context.Context, s *Stage) error {
		l := *s.client.load.Load()
		with(&l)
		s.client.Set(l)
		return nil
	}
}

// briefly returns a fault that changes the load for a while.
func briefly(d time.Duration, with func(*Load)) func(context.Context, *Stage) error {
	return func(ctx context.Context, s *Stage) error {
		before := *s.client.load.Load()
		if err := change(with)(ctx, s); err != nil {
			return err
		}
		go func() {
			_ = sleep(ctx, d)
			s.client.Set(before)
		}()
		return nil
	}
}

// released returns a fault that restarts the first engine with other flags. No request is sent until the engine
// answers.
func released(flags ...string) func(context.Context, *Stage) error {
	return func(ctx context.Context, s *Stage) error {
		e := s.engines[0]
		return s.pause(ctx, func() error {
			begin := time.Now()
			if err := s.declare(begin, begin.Add(time.Hour)); err != nil {
				return err
			}
			err := s.boot(ctx, e, flags)
			e.spent = true
			return errors.Join(err, s.declare(begin, time.Now()))
		})
	}
}

// declare declares maintenance to the exporter, as an operator does before restarting the only engine.
func (s *Stage) declare(from, to time.Time) error {
	if len(s.engines) > 1 {
		return nil
	}
	s.maintenance = fmt.Sprintf("maintenance: [{from: %s, to: %s, reason: a restart that was planned}]\n", from.UTC().
		Format(time.RFC3339), to.UTC().Format(time.RFC3339))
	if _, err := s.configure(s.engines, s.gateway != nil); err != nil {
		return err
	}
	return s.exporter.Process.Signal(syscall.SIGHUP)
}

// pause calls do while no request is sent. Running requests end first.
func (s *Stage) pause(ctx context.Context, do func() error) error {
	before := *s.client.load.Load()
	defer s.client.Set(before)
	s.client.Set(Load{})
	for range 30 {
		if !slices.ContainsFunc(s.client.Records(), func(r Record) bool { return r.End == 0 }) {
			break
		}
		if err := sleep(ctx, time.Second); err != nil {
			return err
		}
	}
	return do()
}

// rolledOut returns a fault that restarts one engine after the other with other flags. During a restart, the other
// engine gets the requests, as with a load balancer.
func rolledOut(flags ...string) func(context.Context, *Stage) error {
	return func(ctx context.Context, s *Stage) error {
		s.loops.Go(func() {
			for i, e := range s.engines {
				lead := func(to *Engine) func() error {
					return func() error { s.ways[i].Lead(local(to.port)); return nil }
				}
				if s.pause(ctx, lead(s.engines[1-i])) != nil || s.boot(ctx, e, flags) != nil || s.pause(ctx, lead(e)) != nil {
					break
				}
			}
			for _, e := range s.engines {
				e.spent = true
			}
		})
		return nil
	}
}

// plays lists all plays: the incidents, and the situations that must not page.
func plays() []Play {
	return slices.Concat(alone(), mixed(), harmless(), behindGateway(), replicas(), refusing(), afterStart(), otherGateways(), outOfSight(),
		inside(), features(), otherServers(), ownConfiguration(), between(), together(), ramps())
}

// ramps measure how much load an engine can take.
func ramps() []Play {
	return []Play{{
		Name: "knee", Says: "after half an hour of a load that swings, the load goes up until an objective breaks", Asked: true,
		Flags: []string{"--max-num-seqs", "32"}, Load: Load{Rate: 2, Own: 64, Output: 20}, Fault: findKnee, Lasts: time.Second,
	}}
}

// alone are the incidents of a single engine.
func alone() []Play {
	return []Play{
		{
			Name: "queueing", Says: "six times the requests, more than --max-num-seqs at once", Right: []rules.Branch{rules.Queueing},
			Fault: change(func(l *Load) { l.Rate *= 6 }),
		},
		{
			Name: "long-prompts", Says: "prompts of 2,400 tokens of their own", Right: []rules.Branch{rules.Prefill, rules.Behaviour},
			Fault: change(func(l *Load) { l.Own = 2400 }),
		},
		{
			Name: "nonce", Says: "each prompt begins with a word of its own: the prefix cache knows none", Right: []rules.Branch{rules.Prefill},
			Load: Load{Rate: 1.6, Shared: 1024, Own: 24, Output: 40}, Fault: change(func(l *Load) { l.Nonce = true }),
		},
		{
			Name: "small-cache", Says: "started again with a KV cache for one request", Right: []rules.Branch{rules.Memory},
			Load: Load{Rate: 0.6, Own: 64, Output: 200}, Flags: room,
			Fault: released(append(room, "--num-gpu-blocks-override", "5", "--max-model-len", "512")...),
		},
		{
			Name: "long-outputs", Says: "answers ten times as long", Right: []rules.Branch{rules.Decode, rules.Behaviour},
			Fault: change(func(l *Load) { l.Output *= 10 }),
		},
		{
			Name: "stopped-busy", Says: "the engine's core stops while requests run", Right: []rules.Branch{rules.Engine},
			Fault: func(_ context.Context, s *Stage) error { return s.engines[0].signal(0, syscall.SIGSTOP) },
		},
		{
			Name: "stopped-idle", Says: "the engine's core stops while nothing runs, then requests come", Right: []rules.Branch{rules.Engine},
			Fault: func(ctx context.Context, s *Stage) error {
				before := *s.client.load.Load()
				s.client.Set(Load{})
				if err := sleep(ctx, 20*time.Second); err != nil {
					return err
				}
				s.client.Set(before)
				return s.engines[0].signal(0, syscall.SIGSTOP)
			},
		},
		{
			Name: "killed-worker", Says: "the engine's core is killed, nothing starts it again", Right: []rules.Branch{rules.Engine},
			Fault: func(_ context.Context, s *Stage) error {
				s.engines[0].spent = true
				return s.engines[0].signal(0, syscall.SIGKILL)
			},
		},
		{
			Name: "cpu-taken", Says: "five processes compute on the engine's core", Right: []rules.Branch{rules.Engine, rules.Hardware},
			Fault: func(_ context.Context, s *Stage) error { return s.burn(s.engines[0], 5) },
		},
		{
			Name: "pauses", Says: "the engine's core stops for 18 s every two minutes", Right: []rules.Branch{rules.Engine}, Load: brief,
			Lasts: 12 * time.Minute,
			Fault: func(ctx context.Context, s *Stage) error {
				go s.engines[0].pause(ctx, 18*time.Second, 102*time.Second)
				return nil
			},
		},
		{
			Name: "slow-release", Says: "started again with --max-num-seqs 1 and --no-enable-prefix-caching", Right: []rules.Branch{rules.Release},
			Load: Load{Rate: 1.2, Shared: 1024, Own: 24, Output: 40}, Fault: released("--max-num-seqs", "1", "--no-enable-prefix-caching"),
		},
	}
}

// mixed are incidents of a single engine that are hardly visible in its settings and its mean load.
func mixed() []Play {
	return []Play{
		{
			Name: "heavier", Says: "started again with five times the layers under the same name", Right: []rules.Branch{rules.Release},
			Fault: func(ctx context.Context, s *Stage) error {
				s.weights = s.heavy
				return released(usual...)(ctx, s)
			},
		},
		{
			Name: "samples", Says: "each request asks for four answers", Right: []rules.Branch{rules.Behaviour, rules.Queueing, rules.Decode},
			Fault: change(func(l *Load) { l.Samples = 4 }),
		},
		{
			Name: "some-long-prompts", Says: "one prompt in six has 3,000 tokens of its own",
			Right: []rules.Branch{rules.Prefill, rules.Behaviour}, Fault: change(func(l *Load) { l.Long = 1.0 / 6 }),
		},
		{
			Name: "front-stopped", Says: "the engine's API server stops, its core runs", Right: []rules.Branch{rules.Engine},
			Fault: func(_ context.Context, s *Stage) error {
				return syscall.Kill(s.engines[0].Process.Process.Pid, syscall.SIGSTOP)
			},
		},
		{
			Name: "door-shut", Says: "nothing listens any more where clients ask, before the engine", Right: []rules.Branch{rules.Routing},
			Lasts: 15 * time.Minute,
			Fault: func(_ context.Context, s *Stage) error { s.client.Move("http://" + local(s.port+19)); return nil },
		},
	}
}

// inside are incidents caused by the content of requests, and by parts of an engine.
func inside() []Play {
	cached := Load{Rate: 1.2, Shared: 1024, Own: 24, Output: 40}
	return []Play{
		{
			Name: "salted", Says: "each request has a cache_salt of its own: no cached prefix fits", Right: []rules.Branch{rules.Prefill},
			Load: cached, Fault: change(func(l *Load) { l.Salted = true }),
		},
		{
			Name: "bad-field", Says: "each request asks for prompt_logprobs in a stream, which vLLM refuses: 400",
			Right: []rules.Branch{rules.Release, rules.Behaviour}, Load: cached,
			Fault: change(func(l *Load) { l.More = `{"prompt_logprobs": 5}` }),
		},
		{
			Name: "front-slow", Says: "the engine's API server computes a quarter of the time, its core runs", Right: []rules.Branch{rules.Engine},
			Load: cached, Lasts: 12 * time.Minute,
			Fault: func(ctx context.Context, s *Stage) error {
				pid := s.engines[0].Process.Process.Pid
				s.loops.Go(func() {
					for syscall.Kill(pid, syscall.SIGSTOP) == nil && sleep(ctx, 450*time.Millisecond) == nil &&
						syscall.Kill(pid, syscall.SIGCONT) == nil && sleep(ctx, 150*time.Millisecond) == nil {
					}
					_ = syscall.Kill(pid, syscall.SIGCONT)
				})
				return nil
			},
		},
		{
			Name: "one-pause", Says: "the engine's core stops for 50 s, once", Right: []rules.Branch{rules.Engine}, Load: brief,
			Fault: func(_ context.Context, s *Stage) error {
				s.loops.Go(func() { _ = s.engines[0].signal(50*time.Second, syscall.SIGSTOP, syscall.SIGCONT) })
				return nil
			},
		},
	}
}

// ownConfiguration are incidents caused by the configuration of LiteLLM.
func ownConfiguration() []Play {
	return []Play{
		{
			Name: "gateway-timeout", Says: "LiteLLM starts again with a timeout of one second, less than many prompts take",
			Right: []rules.Branch{rules.Routing}, Gateway: litellm, Load: Load{Rate: 0.3, Own: 3000, Output: 20}, Lasts: 12 * time.Minute,
			Fault: configured(func(s *Stage) { s.limit = 1 }),
		},
		{
			Name: "gateway-alias", Says: "LiteLLM starts again and asks both engines for a model that they do not serve",
			Right: []rules.Branch{rules.Routing, rules.Release}, Gateway: litellm, Load: light, Lasts: 12 * time.Minute,
			Fault: configured(func(s *Stage) { s.asksFor = "another" }),
		},
	}
}

// between are incidents of the programs and networks between clients and engines.
func between() []Play {
	return []Play{
		{
			Name: "gateway-slow", Says: "LiteLLM computes a fifth of the time", Right: []rules.Branch{rules.Routing},
			Gateway: litellm, Load: light, Lasts: 12 * time.Minute,
			Fault: func(ctx context.Context, s *Stage) error {
				pid := -s.gateway.Process.Pid
				s.loops.Go(func() {
					for syscall.Kill(pid, syscall.SIGSTOP) == nil && sleep(ctx, 480*time.Millisecond) == nil &&
						syscall.Kill(pid, syscall.SIGCONT) == nil && sleep(ctx, 120*time.Millisecond) == nil {
					}
					_ = syscall.Kill(pid, syscall.SIGCONT)
				})
				return nil
			},
		},
		{
			Name: "buffered", Says: "the ways to both engines pass answers on once they are complete", Right: []rules.Branch{rules.Routing},
			Gateway: litellm, Load: Load{Rate: 0.3, Own: 64, Output: 160}, Flags: room, Lasts: 12 * time.Minute,
			Fault: func(_ context.Context, s *Stage) error {
				for _, w := range s.ways {
					w.holds.Store(true)
				}
				return nil
			},
		},
		{
			Name: "cut-streams", Says: "the ways to both engines end each connection after 600 ms", Right: []rules.Branch{rules.Routing},
			Gateway: litellm, Load: Load{Rate: 0.4, Own: 64, Output: 50}, Lasts: 12 * time.Minute,
			Fault: func(_ context.Context, s *Stage) error {
				for _, w := range s.ways {
					w.cuts.Store(int64(600 * time.Millisecond))
					w.end()
				}
				return nil
			},
		},
		{
			Name: "skewed", Says: "the ways to both engines lead to the first", Right: []rules.Branch{rules.Routing, rules.Queueing},
			Gateway: litellm, Load: busy, Flags: room, Lasts: 12 * time.Minute,
			Fault: func(_ context.Context, s *Stage) error { s.ways[1].Lead(local(s.engines[0].port)); return nil },
		},
	}
}

// together are incidents in which many clients do the same thing at the same time, or in which there are too few
// engines.
func together() []Play {
	return []Play{
		{
			Name: "retries", Says: "three times the requests, and clients give up after 3 s and ask again up to five times",
			Right: []rules.Branch{rules.Queueing, rules.Behaviour}, Load: Load{Rate: 1.2, Own: 64, Output: 60},
			Fault: change(func(l *Load) { l.Rate, l.Patience, l.Retries = 3*l.Rate, 3*time.Second, 5 }),
		},
		{
			Name: "bursts", Says: "ten times the requests for six seconds of each minute", Right: []rules.Branch{rules.Queueing, rules.Behaviour},
			Lasts: 12 * time.Minute,
			Fault: func(ctx context.Context, s *Stage) error {
				s.loops.Go(func() {
					for briefly(6*time.Second, func(l *Load) { l.Rate *= 10 })(ctx, s) == nil && sleep(ctx, time.Minute) == nil {
					}
				})
				return nil
			},
		},
		{
			Name: "scaled-down", Says: "one of two engines is taken out of service, too few for the load",
			Right: []rules.Branch{rules.Queueing, rules.Engine}, Gateway: litellm, Load: busy, Flags: room, Lasts: 12 * time.Minute,
			Fault: func(_ context.Context, s *Stage) error {
				gone, rest := s.engines[0], s.engines[1]
				gone.spent = true
				s.ways[0].Lead(local(rest.port))
				if _, err := s.configure([]*Engine{rest}, true); err != nil {
					return err
				}
				return errors.Join(s.exporter.Process.Signal(syscall.SIGHUP), syscall.Kill(gone.Process.Process.Pid, syscall.SIGTERM))
			},
		},
		{
			Name: "dynamo-flood", Says: "thirty times the requests at Dynamo's frontend", Right: []rules.Branch{rules.Queueing},
			Gateway: dynamo, Load: mocked, Fault: change(func(l *Load) { l.Rate *= 30 }),
		},
	}
}

// harmless are the situations that must not page.
func harmless() []Play {
	return []Play{
		{
			Name: "burst", Says: "five times the requests for ten seconds", Lasts: 4 * time.Minute,
			Fault: briefly(10*time.Second, func(l *Load) { l.Rate *= 5 }),
		},
		{
			Name: "cancels", Says: "three in four clients leave after 300 ms", Lasts: 5 * time.Minute,
			Fault: change(func(l *Load) { l.Cancels, l.Early = 0.75, 300*time.Millisecond }),
		},
		{
			Name: "invalid", Says: "a flood of requests that are too long", Lasts: 5 * time.Minute,
			Fault: change(func(l *Load) { l.Rate, l.Invalid = l.Rate*4, 0.75 }),
		},
	}
}

// behindGateway are the incidents of two engines behind LiteLLM.
func behindGateway() []Play {
	return []Play{
		{
			Name: "gateway-dies", Says: "LiteLLM is killed",
			Right: []rules.Branch{rules.Routing}, Gateway: litellm,
			Fault: killGateway,
		},
		{
			Name: "upstream-500", Says: "the way to one of two engines answers 500",
			Right: []rules.Branch{rules.Routing}, Gateway: litellm,
			Fault: func(_ context.Context, s *Stage) error { s.ways[0].Fail(true); return nil },
		},
		{
			Name: "cooldown", Says: "the ways to both engines answer 500, until the gateway cools them down and answers 429",
			Right: []rules.Branch{rules.Routing}, Gateway: litellm,
			Fault: failUpstreams,
		},
		{
			Name: "network", Says: "800 ms more between gateway and engines, each way",
			Right: []rules.Branch{rules.Routing}, Gateway: litellm, Lasts: 12 * time.Minute,
			Fault: func(_ context.Context, s *Stage) error {
				for _, w := range s.ways {
					w.delay.Store(int64(800 * time.Millisecond))
				}
				return nil
			},
		},
		{
			Name: "slow-replica", Says: "one of two engines computes a sixth of the time",
			Right: []rules.Branch{rules.Routing, rules.Engine}, Gateway: litellm, Lasts: 12 * time.Minute,
			Fault: func(ctx context.Context, s *Stage) error {
				go s.engines[0].pause(ctx, 83*time.Millisecond, 17*time.Millisecond)
				return nil
			},
		},
		{
			Name: "hanging-replica", Says: "the core of one of two engines stops; clients give up after 15 s", Right: []rules.Branch{rules.Engine},
			Gateway: litellm, Load: Load{Rate: 0.4, Own: 64, Output: 20, Patience: 15 * time.Second}, Lasts: 12 * time.Minute,
			Fault: func(_ context.Context, s *Stage) error { return s.engines[0].signal(0, syscall.SIGSTOP) },
		},
	}
}

// replicas are incidents of the engines behind a gateway.
func replicas() []Play {
	return []Play{
		{
			Name: "blind", Says: "the metrics of both engines hang, and clients are served", Gateway: litellm, Load: light, Eyes: true,
			Fault: func(_ context.Context, s *Stage) error {
				for _, w := range s.eyes {
					w.delay.Store(int64(time.Hour))
				}
				return nil
			},
		},
		{
			Name: "ways-dead", Says: "nothing listens any more at the addresses of both engines that LiteLLM knows", Right: []rules.Branch{rules.Routing},
			Gateway: litellm, Load: light, Fault: leadNowhere,
		},
		{
			Name: "one-way-slow", Says: "3 s more between LiteLLM and one of two engines, each way", Right: []rules.Branch{rules.Routing},
			Gateway: litellm, Load: light, Lasts: 12 * time.Minute,
			Fault: func(_ context.Context, s *Stage) error {
				s.ways[0].delay.Store(int64(3 * time.Second))
				return nil
			},
		},
		{
			Name: "half-gone", Says: "one of two engines ends; the other cannot serve all", Right: []rules.Branch{rules.Engine}, Gateway: litellm,
			Load: Load{Rate: 1.2, Own: 64, Output: 60}, Lasts: 12 * time.Minute,
			Fault: func(_ context.Context, s *Stage) error {
				s.engines[0].spent = true
				return syscall.Kill(s.engines[0].Process.Process.Pid, syscall.SIGTERM)
			},
		},
		{
			Name: "roll-same", Says: "two engines start one after the other, as they were", Gateway: litellm, Load: light,
			Fault: rolledOut(usual...),
		},
	}
}

// refusing lists the incidents in which engines answer, but refuse models that they served before.
func refusing() []Play {
	changed := []rules.Branch{rules.Release, rules.Routing}
	return []Play{
		{
			Name: "wrong-key", Says: "two engines start one after the other with a key that LiteLLM does not know: 401", Right: changed,
			Gateway: litellm, Load: light, Lasts: 12 * time.Minute, Fault: rolledOut("--max-num-seqs", "2", "--api-key", "another"),
		},
		{
			Name: "renamed", Says: "two engines start one after the other under a name that LiteLLM does not know: 404", Right: changed,
			Gateway: litellm, Load: light, Lasts: 12 * time.Minute, Fault: rolledOut("--max-num-seqs", "2", "--served-model-name", "another"),
		},
		{
			Name: "short-context", Says: "one of two engines starts again with --max-model-len 1024, too short for the prompts: 400", Right: changed,
			Gateway: litellm, Load: shared, Lasts: 12 * time.Minute, Fault: released("--max-num-seqs", "2", "--max-model-len", "1024"),
		},
	}
}

// pause alternately stops an engine and lets it run.
func (e *Engine) pause(ctx context.Context, stops, runs time.Duration) {
	for e.signal(stops, syscall.SIGSTOP, syscall.SIGCONT) == nil && sleep(ctx, runs) == nil {
	}
}

func killGateway(_ context.Context, s *Stage) error {
	return syscall.Kill(-s.gateway.Process.Pid, syscall.SIGKILL)
}

// crashLoop crashes the first engine repeatedly, 20 s after each start.
func crashLoop(ctx context.Context, s *Stage) error {
	return s.crash(ctx, s.engines[0], 20*time.Second)
}

func failUpstreams(_ context.Context, s *Stage) error {
	for _, w := range s.ways {
		w.Fail(true)
	}
	return nil
}

func leadNowhere(_ context.Context, s *Stage) error {
	for _, w := range s.ways {
		w.Lead(local(s.port + 19))
	}
	return nil
}

// afterStart are incidents in which engines start or restart.
func afterStart() []Play {
	slots := func(n string) []string { return []string{"--max-num-seqs", "4", "--enable-lora", "--max-loras", n} }
	return []Play{
		{
			Name: "adapters", Says: "four adapters are asked in turn; started again with --max-loras 1", Right: []rules.Branch{rules.Memory},
			Load: Load{Rate: 1, Own: 100, Output: 60, Adapters: adapters}, Flags: slots("4"), Fault: released(slots("1")...),
		},
		{
			Name: "roll-out", Says: "two engines start one after the other, with --max-num-seqs 1 and --no-enable-prefix-caching",
			Right: []rules.Branch{rules.Release}, Gateway: litellm, Lasts: 12 * time.Minute,
			Fault: rolledOut("--max-num-seqs", "1", "--no-enable-prefix-caching"),
		},
		{
			Name: "crash-loop", Says: "the engine's core is killed 20 s after each start", Right: []rules.Branch{rules.Engine}, Load: light,
			Fault: crashLoop,
		},
		{
			Name: "came-back", Says: "the engine's core is killed; it is back between the two readings of triage",
			Right: []rules.Branch{rules.Engine}, Load: light,
			Fault: func(ctx context.Context, s *Stage) error {
				e := s.engines[0]
				s.asks = e.takes - 15*time.Second
				return s.crash(ctx, e, time.Hour)
			},
		},
		{
			Name: "second-page", Says: "one of two engines crashes again and again; 16 minutes after the page LiteLLM is killed",
			Load:  light,
			Right: []rules.Branch{rules.Routing}, Gateway: litellm, Fault: crashLoop, Then: killGateway,
		},
	}
}

// outOfSight are incidents that clients or the exporter do not see.
func outOfSight() []Play {
	return []Play{
		{
			Name: "probed", Says: "LiteLLM is killed, which the exporter asks every ten seconds", Right: []rules.Branch{rules.Routing},
			Load: Load{Rate: 0.1, Own: 64, Output: 400, Stop: "77"}, Gateway: litellm, Probes: true, Fault: killGateway,
		},
		{
			Name: "exporter-dies", Says: "the exporter is killed, and starts again after five minutes", Gateway: dynamo, Load: mocked,
			Lasts: 7 * time.Minute,
			Fault: func(ctx context.Context, s *Stage) error {
				s.exporter.stop()
				s.loops.Go(func() {
					if sleep(ctx, 5*time.Minute) == nil {
						_ = s.watch(ctx)
					}
				})
				return nil
			},
		},
		{
			Name: "target-removed", Says: "the frontend is taken out of the exporter's configuration", Gateway: dynamo, Load: mocked,
			Fault: func(_ context.Context, s *Stage) error {
				if _, err := s.configure(nil, false); err != nil {
					return err
				}
				return s.exporter.Process.Signal(syscall.SIGHUP)
			},
		},
		{
			Name: "cut-answers", Says: "the way to one of two engines asks for one token, whatever was asked for",
			Load:  light,
			Right: []rules.Branch{rules.Routing, rules.Behaviour}, Gateway: litellm, Lasts: 25 * time.Minute,
			Fault: func(_ context.Context, s *Stage) error { s.ways[0].shortens.Store(true); return nil },
		},
	}
}

// otherGateways are the incidents of other gateways.
func otherGateways() []Play {
	return []Play{
		{
			Name: "vllm-router-500", Says: "the ways from vllm-router to both engines answer 500", Right: []rules.Branch{rules.Routing}, Load: light,
			Gateway: vllmRouter, Fault: failUpstreams,
		},
		{
			Name: "sglang-router-500", Says: "the ways from sglang-router to both engines answer 500", Right: []rules.Branch{rules.Routing},
			Load:    light,
			Gateway: sglangRouter, Fault: failUpstreams,
		},
		{
			Name: "router-hanging", Says: "the core of one of two engines behind vllm-router stops; clients give up after 15 s",
			Right: []rules.Branch{rules.Engine}, Gateway: vllmRouter, Lasts: 12 * time.Minute,
			Load:  Load{Rate: 0.4, Own: 64, Output: 20, Patience: 15 * time.Second},
			Fault: func(_ context.Context, s *Stage) error { return s.engines[0].signal(0, syscall.SIGSTOP) },
		},
		{
			Name: "dynamo-halved", Says: "one of two workers of Dynamo stops, and its requests hang", Right: []rules.Branch{rules.Engine},
			Gateway: dynamo, Load: mocked, Lasts: 12 * time.Minute,
			Fault: func(_ context.Context, s *Stage) error {
				return syscall.Kill(-s.workers[0].Process.Pid, syscall.SIGSTOP)
			},
		},
		{
			Name: "dynamo-killed", Says: "all workers of Dynamo are killed, and the frontend lives", Right: []rules.Branch{rules.Engine},
			Gateway: dynamo, Load: mocked,
			Fault: func(_ context.Context, s *Stage) error {
				for _, w := range s.workers {
					if err := syscall.Kill(-w.Process.Pid, syscall.SIGKILL); err != nil {
						return err
					}
				}
				return nil
			},
		},
	}
}
