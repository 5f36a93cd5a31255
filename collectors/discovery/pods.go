package discovery

import (
	"cmp"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"

	"github.com/llm-node-exporter/llm-node-exporter/collectors/engine"
	"github.com/llm-node-exporter/llm-node-exporter/metrics"
)

// Annotations with which a pod's author decides.
const (
	// AnnotationScrape set to "false" keeps the exporter away.
	AnnotationScrape = "llm-node-exporter/scrape"
	// AnnotationPort declares ports as engines, as in "8000,8001".
	AnnotationPort = "llm-node-exporter/port"
	// AnnotationEngine names the runtime instead of having it recognised.
	AnnotationEngine = "llm-node-exporter/engine"
	// AnnotationPath is the path of the page where it is not one of the usual.
	AnnotationPath = "llm-node-exporter/path"
	// AnnotationScheme is http or https.
	AnnotationScheme = "llm-node-exporter/scheme"

	prometheusPort = "prometheus.io/port"
)

// engineTypes are the labels with which llm-d and the Gateway API Inference Extension name the engine
// of a pod, and roleLabel what part of a disaggregated engine it is.
var engineTypes = []string{"llm-d.ai/engine-type", "inference.networking.k8s.io/engine-type"}

const roleLabel = "llm-d.ai/role"

// runtimeOf translates the values of engineTypes.
var runtimeOf = map[string]metrics.Runtime{
	"vllm": metrics.VLLM, "sglang": metrics.SGLang, "trtllm-serve": metrics.TensorRTLLM,
	"triton-tensorrt-llm": metrics.TritonTRTLLM, "triton": metrics.Triton,
}

// usualPorts are what engines listen on unless told otherwise: vLLM, trtllm-serve, NIM and Dynamo's
// frontend; llama.cpp; SGLang; TGI in its image and outside; Triton's metrics; LMDeploy.
var usualPorts = []int{8000, 8080, 30000, 80, 3000, 8002, 23333}

// maxPorts bounds what one pod can make the exporter ask.
const maxPorts = 16

// pod is the part of a Pod that matters here.
type pod struct {
	Metadata struct {
		Name        string            `json:"name"`
		Namespace   string            `json:"namespace"`
		Labels      map[string]string `json:"labels"`
		Annotations map[string]string `json:"annotations"`
	} `json:"metadata"`
	Spec struct {
		NodeName       string      `json:"nodeName"`
		HostNetwork    bool        `json:"hostNetwork"`
		Containers     []container `json:"containers"`
		InitContainers []container `json:"initContainers"`
		ResourceClaims []struct{}  `json:"resourceClaims"`
	} `json:"spec"`
	Status struct {
		Phase  string `json:"phase"`
		PodIP  string `json:"podIP"`
		HostIP string `json:"hostIP"`
	} `json:"status"`
}

type container struct {
	Name          string   `json:"name"`
	Command       []string `json:"command"`
	Args          []string `json:"args"`
	RestartPolicy string   `json:"restartPolicy"`
	Ports         []struct {
		ContainerPort int    `json:"containerPort"`
		Protocol      string `json:"protocol"`
	} `json:"ports"`
	Env []struct {
		Name string `json:"name"`
	} `json:"env"`
	Resources struct {
		Limits map[string]any `json:"limits"`
		Claims []struct{}     `json:"claims"`
	} `json:"resources"`
}

// places are where engines may answer in the pods of a node.
func places(pods []*pod, node string, log *slog.Logger) []Place {
	slices.SortFunc(pods, func(a, b *pod) int { return cmp.Compare(a.name(), b.name()) })
	var all []Place
	for _, p := range pods {
		if p.Spec.NodeName != node || p.Status.Phase != "Running" || p.address() == "" {
			continue
		}
		found, err := p.places()
		if err != nil {
			log.Warn("an annotation of a pod is wrong: the pod is left out", "pod", p.name(), "err", err)
		}
		all = append(all, found...)
	}
	return all
}

func (p *pod) name() string { return p.Metadata.Namespace + "/" + p.Metadata.Name }

// address is where the pod's ports are.
func (p *pod) address() string {
	if p.Spec.HostNetwork {
		return cmp.Or(p.Status.HostIP, p.Status.PodIP)
	}
	return p.Status.PodIP
}

// places are the ports of a pod at which an engine may answer. Only pods are asked that hold a GPU or
// say that they are engines: nobody else's ports are touched.
func (p *pod) places() ([]Place, error) {
	notes := p.Metadata.Annotations
	declared, err := ports(notes[AnnotationPort], AnnotationPort)
	if err != nil {
		return nil, err
	}
	runtimeName := cmp.Or(notes[AnnotationEngine], string(p.engineType()))
	scheme := cmp.Or(notes[AnnotationScheme], "http")
	switch {
	case scheme != "http" && scheme != "https":
		return nil, fmt.Errorf("%s: %q is neither http nor https", AnnotationScheme, scheme)
	case notes[AnnotationPath] != "" && notes[AnnotationPath][0] != '/':
		return nil, fmt.Errorf("%s: %q does not begin with a slash", AnnotationPath, notes[AnnotationPath])
	case notes[AnnotationScrape] == "false":
		return nil, nil
	case len(declared) == 0 && runtimeName == "" && !p.holdsGPU():
		return nil, nil
	}
	place := func(port int, c *container) Place {
		target := engine.TargetConfig{
			URL:    scheme + "://" + net.JoinHostPort(p.address(), strconv.Itoa(port)) + notes[AnnotationPath],
			Labels: map[string]string{metrics.LabelNamespace: p.Metadata.Namespace, metrics.LabelPod: p.Metadata.Name},
		}
		if c != nil {
			target.Labels[metrics.LabelContainer] = c.Name
		}
		if role := p.Metadata.Labels[roleLabel]; role == "prefill" || role == "decode" {
			target.Labels[metrics.LabelRole] = role
		}
		return Place{Target: target}
	}

	owners := p.ports()
	if len(declared) > 0 {
		var all []Place
		for _, port := range declared {
			at := place(port, owners[port])
			at.Declared, at.Target.Engine = true, runtimeName
			all = append(all, at)
		}
		return all, nil
	}
	candidates := slices.Sorted(maps.Keys(owners))
	if hinted, err := ports(notes[prometheusPort], prometheusPort); err == nil {
		candidates = append(hinted, candidates...)
	}
	if len(candidates) == 0 {
		candidates = usualPorts
	}
	var all []Place
	for i, port := range candidates {
		if slices.Contains(candidates[:i], port) || len(all) == maxPorts {
			continue
		}
		at := place(port, cmp.Or(owners[port], p.only()))
		at.LeaveAlone = p.sleeper(owners[port])
		// A pod that says what it runs, and has one port, has left nothing to find out.
		if at.LeaveAlone == "" && runtimeName != "" && len(candidates) == 1 {
			at.Declared, at.Target.Engine = true, runtimeName
		}
		all = append(all, at)
	}
	return all, nil
}

// ports are the TCP ports that the containers declare.
func (p *pod) ports() map[int]*container {
	owners := map[int]*container{}
	for _, c := range p.running() {
		for _, port := range c.Ports {
			if port.Protocol == "" || port.Protocol == "TCP" {
				owners[port.ContainerPort] = c
			}
		}
	}
	return owners
}

// running are the containers that run beside each other: also init containers that are never done.
func (p *pod) running() (all []*container) {
	for i := range p.Spec.InitContainers {
		if p.Spec.InitContainers[i].RestartPolicy == "Always" {
			all = append(all, &p.Spec.InitContainers[i])
		}
	}
	for i := range p.Spec.Containers {
		all = append(all, &p.Spec.Containers[i])
	}
	return all
}

// only is the container of a pod that has one.
func (p *pod) only() *container {
	if all := p.running(); len(all) == 1 {
		return all[0]
	}
	return nil
}

func (p *pod) engineType() metrics.Runtime {
	for _, label := range engineTypes {
		if r, ok := runtimeOf[p.Metadata.Labels[label]]; ok {
			return r
		}
	}
	return ""
}

// holdsGPU reports whether a container asks for a device of NVIDIA, or for any by a claim.
func (p *pod) holdsGPU() bool {
	return slices.ContainsFunc(p.running(), func(c *container) bool {
		if len(c.Resources.Claims) > 0 {
			return true
		}
		for resource := range c.Resources.Limits {
			if strings.HasPrefix(resource, "nvidia.com/") {
				return true
			}
		}
		return false
	})
}

// sleepers are options of llama.cpp's server that unload the model when no request has come for a
// while. Reading the metrics is a request.
const (
	sleepFlag     = "--sleep-idle-seconds"
	sleepVariable = "LLAMA_ARG_SLEEP_IDLE_SECONDS"
)

// sleeper says why a container must not be asked. Without one it speaks of the whole pod.
func (p *pod) sleeper(c *container) string {
	all := p.running()
	if c != nil {
		all = []*container{c}
	}
	for _, c := range all {
		if sleeps(slices.Concat(c.Command, c.Args)) {
			return sleepFlag + ": each scrape would keep the model loaded; declare the port with " + AnnotationPort + " to scrape it all the same"
		}
		for _, e := range c.Env {
			if e.Name == sleepVariable {
				return sleepVariable + ": each scrape would keep the model loaded; declare the port with " + AnnotationPort + " to scrape it all the same"
			}
		}
	}
	return ""
}

// sleeps reports whether a command line makes llama.cpp's server sleep when idle. It may be a line for a
// shell.
func sleeps(args []string) bool {
	line := strings.Join(args, " ")
	return strings.Contains(line, sleepFlag) && !strings.Contains(line, sleepFlag+" -1") && !strings.Contains(line, sleepFlag+"=-1")
}

// ports reads a list of ports.
func ports(text, name string) ([]int, error) {
	var all []int
	for field := range strings.SplitSeq(text, ",") {
		field = strings.TrimSpace(field)
		if field == "" {
			continue
		}
		port, err := strconv.ParseUint(field, 10, 16)
		if err != nil || port == 0 {
			return nil, fmt.Errorf("%s: %q is no port: write it as 8000 or 8000,8001", name, field)
		}
		all = append(all, int(port))
	}
	if len(all) > maxPorts {
		return nil, fmt.Errorf("%s: %d ports, more than %d", name, len(all), maxPorts)
	}
	return all, nil
}
