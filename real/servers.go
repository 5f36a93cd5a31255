package main

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"time"

	"github.com/llm-node-exporter/llm-node-exporter/rules"
)

// server is a kind of inference server that can serve the model.
type server struct {
	name      string
	usual     []string      // default flags
	step      time.Duration // time per token on the machine of the first scores, which computes with AVX-512
	token     time.Duration // time per prompt token that is not cached
	computing []string      // names of the processes that compute; all but the first may be missing
	command   func(s *Stage, e *Engine) (env, args []string)
}

var (
	vllm = &server{
		name: "vllm", usual: usual, step: 10 * time.Millisecond, token: 1600 * time.Microsecond,
		computing: []string{"VLLM::EngineCore", "VLLM::Worker"}, command: (*Stage).vllmCommand,
	}
	sglang = &server{
		name: "sglang", usual: []string{"--max-running-requests", "2"}, step: 10 * time.Millisecond, token: 2800 * time.Microsecond,
		computing: []string{"sglang::scheduler"}, command: (*Stage).sglangCommand,
	}
	llama = &server{
		name: "llama", usual: []string{"--parallel", "2"}, step: 10 * time.Millisecond, token: 2 * time.Millisecond,
		computing: []string{"--alias"}, command: (*Stage).llamaCommand,
	}
)

func (s *Stage) vllmCommand(e *Engine) (env, args []string) {
	args = append([]string{
		s.program("vllm", "vllm"), "serve", cmp.Or(s.weights, s.model), "--served-model-name", model, "--enforce-eager",
		"--max-model-len", "4096", "--host", "127.0.0.1", "--port", strconv.Itoa(e.port),
	}, e.flags...)
	if slices.Contains(e.flags, "--enable-lora") {
		args = append(args, "--lora-modules")
		for i := range adapters {
			args = append(args, adapter(i)+"="+filepath.Join(s.model, "adapters", strconv.Itoa(i)))
		}
	}
	return []string{
		"HF_HUB_OFFLINE=1", "VLLM_NO_USAGE_STATS=1", "VLLM_CPU_KVCACHE_SPACE=1", "VLLM_SERVER_DEV_MODE=1",
		"VLLM_CPU_OMP_THREADS_BIND=" + strconv.Itoa(e.core),
	}, args
}

func (s *Stage) sglangCommand(e *Engine) (env, args []string) {
	return []string{"HF_HUB_OFFLINE=1", "SGLANG_USE_CPU_ENGINE=1", "LD_LIBRARY_PATH=" + filepath.Join(s.Programs.folder, "sglang")},
		append([]string{
			s.program("sglang", "python"), "-m", "sglang.launch_server", "--model-path", s.model, "--served-model-name", model,
			"--device", "cpu", "--enable-metrics", "--attention-backend", "torch_native", "--sampling-backend", "pytorch",
			"--disable-cuda-graph", "--disable-overlap-schedule", "--mem-fraction-static", "0.1", "--max-total-tokens", "16384",
			"--context-length", "4096", "--host", "127.0.0.1", "--port", strconv.Itoa(e.port),
		}, e.flags...)
}

func (s *Stage) llamaCommand(e *Engine) (env, args []string) {
	return nil, append([]string{
		s.llamaPath, "--model", filepath.Join(s.gguf, "model.gguf"), "--alias", model, "--threads", "1", "--ctx-size", "8192",
		"--metrics", "--no-webui", "--host", "127.0.0.1", "--port", strconv.Itoa(e.port),
	}, e.flags...)
}

// cudaStub builds a library beside SGLang. It has the one function of CUDA's library that SGLang calls without a GPU.
func cudaStub(ctx context.Context, folder string) error {
	source := filepath.Join(folder, "cuda.c")
	err := os.WriteFile(source, []byte("int cuPointerGetAttribute(void *data, int attribute, unsigned long long pointer) { return 100; }\n"), 0o600)
	if err != nil {
		return err
	}
	out, err := exec.CommandContext(ctx, "gcc", "-shared", "-fPIC", "-o", filepath.Join(folder, "libcuda.so.1"), source).CombinedOutput()
	if err != nil {
		return fmt.Errorf("gcc: %w: %s (%w)", err, out, errMissing)
	}
	return nil
}

// throttle gives an engine a share of a core's time, as a container's CPU limit does.
func throttle(ctx context.Context, s *Stage, e *Engine, share float64) error {
	const period = 100_000 // microseconds
	group, quota := fmt.Sprintf("/sys/fs/cgroup/cpu/real-%d", e.port), fmt.Sprint(int(share*period))
	limits := map[string]string{"cpu.cfs_period_us": fmt.Sprint(period), "cpu.cfs_quota_us": quota}
	if _, err := os.Stat("/sys/fs/cgroup/cgroup.controllers"); err == nil {
		group, limits = filepath.Join("/sys/fs/cgroup", filepath.Base(group)), map[string]string{"cpu.max": fmt.Sprint(quota, " ", period)}
	}
	if err := os.MkdirAll(group, 0o755); err != nil {
		return fmt.Errorf("%w (%w)", err, errMissing)
	}
	for name, value := range limits {
		if err := os.WriteFile(filepath.Join(group, name), []byte(value), 0); err != nil {
			return fmt.Errorf("%w (%w)", err, errMissing)
		}
	}
	for _, pid := range descendants(e.Process.Process.Pid) {
		if err := os.WriteFile(filepath.Join(group, "cgroup.procs"), []byte(strconv.Itoa(pid)), 0); err != nil {
			return err
		}
	}
	e.spent = true // it stays in its group
	s.loops.Go(func() {
		<-ctx.Done()
		e.stop()
		_ = os.Remove(group)
	})
	return nil
}

// otherServers are incidents of engines that are not vLLM.
func otherServers() []Play {
	return []Play{
		{
			Name: "slow-peer", Says: "one of four llama-servers gets at most half of a core", Server: llama,
			Right: []rules.Branch{rules.Routing, rules.Engine, rules.Hardware}, Gateway: vllmRouter, Engines: 4,
			Load: Load{Rate: 0.25, Own: 24, Output: 40}, Lasts: 20 * time.Minute, Asked: true,
			Fault: func(ctx context.Context, s *Stage) error { return throttle(ctx, s, s.engines[2], 0.5) },
		},
		{
			Name: "sglang-queueing", Says: "SGLang gets six times the requests, more than --max-running-requests at once",
			Server: sglang, Right: []rules.Branch{rules.Queueing}, Fault: change(func(l *Load) { l.Rate *= 6 }),
		},
		{
			Name: "sglang-long-prompts", Says: "prompts of 2,400 tokens of their own for SGLang", Server: sglang,
			Right: []rules.Branch{rules.Prefill, rules.Behaviour}, Fault: change(func(l *Load) { l.Own = 2400 }),
		},
		{
			Name: "sglang-long-outputs", Says: "SGLang's answers are ten times as long", Server: sglang,
			Right: []rules.Branch{rules.Decode, rules.Behaviour}, Fault: change(func(l *Load) { l.Output *= 10 }),
		},
		{
			Name: "sglang-stopped", Says: "SGLang's scheduler stops while requests run", Server: sglang, Right: []rules.Branch{rules.Engine},
			Fault: func(_ context.Context, s *Stage) error { return s.engines[0].signal(0, syscall.SIGSTOP) },
		},
		{
			Name: "sglang-killed", Says: "SGLang's scheduler is killed, nothing starts it again", Server: sglang,
			Right: []rules.Branch{rules.Engine},
			Fault: func(_ context.Context, s *Stage) error {
				s.engines[0].spent = true
				return s.engines[0].signal(0, syscall.SIGKILL)
			},
		},
	}
}
