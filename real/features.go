package main

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"syscall"
	"time"

	"github.com/llm-node-exporter/llm-node-exporter/rules"
)

// features are incidents of vLLM's features that need a flag or a request: two API servers, drafts, a small KV cache, a
// pause.
func features() []Play {
	with := func(flags ...string) []string { return slices.Concat(usual, flags) }
	drafts := `{"method": "ngram", "num_speculative_tokens": 5, "prompt_lookup_max": 3, "prompt_lookup_min": 1}`
	return []Play{
		{
			// The kernel sends new connections to the other server, so no alert may page.
			Name: "two-doors", Says: "one of the engine's two API servers stops", Load: light,
			Flags: with("--api-server-count", "2"), Fault: stop("VLLM::APIServer_1"),
		},
		{
			Name: "drafts", Says: "clients ask for random answers, which no draft guesses", Right: []rules.Branch{rules.Decode, rules.Behaviour},
			Load:  Load{Rate: 1.6, Own: 24, Output: 200, More: `{"temperature": 0}`},
			Flags: with("--speculative-config", drafts), Fault: change(func(l *Load) { l.More = "" }),
		},
		{
			Name: "preempted", Says: "answers are ten times as long, too long for the KV cache", Load: Load{Rate: 1.5, Own: 200, Output: 40},
			Right: []rules.Branch{rules.Memory, rules.Behaviour, rules.Decode},
			Flags: []string{"--max-num-seqs", "16", "--num-gpu-blocks-override", "40"}, Fault: change(func(l *Load) { l.Output *= 10 }),
		},
		{
			Name: "paused", Says: "the engine is paused, as before new weights, and nobody resumes it", Right: []rules.Branch{rules.Engine},
			Load: light,
			Fault: func(ctx context.Context, s *Stage) error {
				return post(ctx, s.engines[0].url()+"/pause?mode=keep")
			},
		},
		{
			Name: "doubled", Says: "twice the requests, which the engine can serve", Load: brief, Lasts: 6 * time.Minute,
			Fault: change(func(l *Load) { l.Rate *= 2 }),
		},
	}
}

// stop returns a fault that stops a process of the first engine.
func stop(name string) func(context.Context, *Stage) error {
	return func(_ context.Context, s *Stage) error {
		pid, err := s.engines[0].named(name)
		if err != nil {
			return err
		}
		return syscall.Kill(pid, syscall.SIGSTOP)
	}
}

func post(ctx context.Context, url string) error {
	ask, err := http.NewRequestWithContext(ctx, http.MethodPost, url, nil)
	if err != nil {
		return err
	}
	answer, err := http.DefaultClient.Do(ask)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", url, answer.Status)
	}
	return nil
}
