package main

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// front is a program in front of engines.
type front struct {
	name   string
	health string // path that answers 200 when the gateway is ready
	pages  int    // distance of its metrics port from its own port
	starts func(s *Stage, urls []string) (*Process, error)
}

// These are the gateways.
var (
	litellm      = &front{name: "LiteLLM", health: "/health/liveliness", starts: (*Stage).litellmFront}
	vllmRouter   = &front{name: "vllm-router", health: "/health", pages: 1, starts: router("vllm-router")}
	sglangRouter = &front{name: "sglang-router", health: "/health", pages: 1, starts: router("sglang-router", "launch")}
	dynamo       = &front{name: "Dynamo", health: "/v1/models", starts: (*Stage).dynamoFront}
)

// page returns the port of the gateway's metrics. port is the first port of the stage.
func (f *front) page(port int) int { return port + 10 + f.pages }

// connect starts a gateway in front of the engines. There is one Way between the gateway and each engine.
func (s *Stage) connect(ctx context.Context, f *front) (err error) {
	var urls []string
	for i, e := range s.engines {
		at := local(s.port + 20 + i)
		w, err := NewWay(at, local(e.port))
		if err != nil {
			return err
		}
		s.ways, urls = append(s.ways, w), append(urls, "http://"+at)
	}
	s.front = f
	if s.gateway, err = f.starts(s, urls); err != nil {
		return err
	}
	err = s.gateway.answers(ctx, s.entrance()+f.health, 5*time.Minute)
	if len(s.workers) > 0 && err == nil { // until both engines are registered, the gateway finds no model for some requests
		err = sleep(ctx, 5*time.Second)
	}
	return err
}

// litellmFront starts LiteLLM.
func (s *Stage) litellmFront(urls []string) (*Process, error) {
	var config strings.Builder
	fmt.Fprintf(&config, "litellm_settings: {callbacks: [prometheus], num_retries: 0, request_timeout: %d}\n"+
		"router_settings: {routing_strategy: simple-shuffle}\nmodel_list:\n", cmp.Or(s.limit, 120))
	for _, url := range urls {
		fmt.Fprintf(&config, "  - model_name: %s\n    litellm_params: {model: text-completion-openai/%s, ", model, cmp.Or(s.asksFor, model))
		fmt.Fprintf(&config, "api_base: '%s/v1', api_key: none}\n", url)
	}
	file := filepath.Join(s.folder, "litellm.yaml")
	if err := os.WriteFile(file, []byte(config.String()), 0o600); err != nil {
		return nil, err
	}
	env := []string{"LITELLM_MASTER_KEY=" + key, "LITELLM_TELEMETRY=False", "LITELLM_LOCAL_MODEL_COST_MAP=True"}
	return start(filepath.Join(s.folder, "litellm.log"), env, s.program("gateway", "litellm"),
		"--config", file, "--host", "127.0.0.1", "--port", strconv.Itoa(s.port+10))
}

// configured returns a fault that changes the configuration of LiteLLM, and restarts it.
func configured(changes func(s *Stage)) func(context.Context, *Stage) error {
	return func(ctx context.Context, s *Stage) error {
		return s.pause(ctx, func() error {
			changes(s)
			s.gateway.stop()
			urls := make([]string, len(s.engines))
			for i := range urls {
				urls[i] = "http://" + local(s.port+20+i)
			}
			var err error
			if s.gateway, err = s.litellmFront(urls); err != nil {
				return err
			}
			return s.gateway.answers(ctx, s.entrance()+s.front.health, 5*time.Minute)
		})
	}
}

// router returns the function that starts one of the two routers.
func router(command ...string) func(*Stage, []string) (*Process, error) {
	return func(s *Stage, urls []string) (*Process, error) {
		args := append(slices.Clone(command[1:]), "--host", "127.0.0.1", "--port", strconv.Itoa(s.port+10),
			"--prometheus-host", "127.0.0.1", "--prometheus-port", strconv.Itoa(s.port+11), "--policy", "round_robin", "--worker-urls")
		return start(filepath.Join(s.folder, command[0]+".log"), nil, s.program("routers", command[0]), append(args, urls...)...)
	}
}

// dynamoFront starts Dynamo's frontend with two of its mockers.
func (s *Stage) dynamoFront([]string) (*Process, error) {
	env := []string{
		"DYN_DISCOVERY_BACKEND=file", "DYN_FILE_KV=" + filepath.Join(s.folder, "dynamo"), "DYN_EVENT_PLANE=zmq",
		"HF_HUB_OFFLINE=1",
	}
	for i := range 2 {
		own := append(slices.Clone(env), "DYN_SYSTEM_ENABLED=true", "DYN_SYSTEM_PORT="+strconv.Itoa(s.port+12+i))
		w, err := start(filepath.Join(s.folder, fmt.Sprintf("mocker-%d.log", i)), own, s.program("dynamo", "python"), "-m", "dynamo.mocker",
			"--discovery-backend", "file", "--model-path", s.words, "--model-name", model,
			"--max-num-seqs", "8", "--num-gpu-blocks-override", "512", "--block-size", "64")
		if err != nil {
			return nil, err
		}
		s.workers = append(s.workers, w)
	}
	return start(filepath.Join(s.folder, "dynamo.log"), env, s.program("dynamo", "python"), "-m", "dynamo.frontend",
		"--discovery-backend", "file", "--http-port", strconv.Itoa(s.port+10), "--router-mode", "round-robin")
}
