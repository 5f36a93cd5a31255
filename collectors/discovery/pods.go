package discovery

import (
	"cmp"
	"fmt"
	"log/slog"
	"net"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/llm-node-exporter/llm-node-exporter/collectors/engine"
	"github.com/llm-node-exporter/llm-node-exporter/metrics"
)

// These annotations let the author of a pod control discovery.
const (
	// AnnotationScrape is "false" on a pod that the exporter must not read.
	AnnotationScrape = "llm-node-exporter/scrape"
	// AnnotationPort declares ports as engines, as in "8000,8001".
	AnnotationPort = "llm-node-exporter/port"
	// AnnotationEngine sets the runtime. The exporter then does not detect the runtime.
	AnnotationEngine = "llm-node-exporter/engine"
	// AnnotationPath is the path of the metrics page if it is not one of the usual paths.
	AnnotationPath = "llm-node-exporter/path"
	// AnnotationScheme is http or https.
	AnnotationScheme = "llm-node-exporter/scheme"

	// These are Prometheus' own annotations: the port to scrape, and the path and scheme.
	prometheusPort   = "prometheus.io/port"
	prometheusPath   = "prometheus.io/path"
	prometheusScheme = "prometheus.io/scheme"
)

// engineTypes lists the labels by which llm-d and the Gateway API Inference Extension mark a pod's engine. roleLabel
// names the pod's part in a disaggregated engine.
var engineTypes = []string{"llm-d.ai/engine-type", "inference.networking.k8s.io/engine-type"}

const roleLabel = "llm-d.ai/role"

// runtimeOf translates the values of engineTypes.
var runtimeOf = func() map[string]metrics.Runtime {
	all := map[string]metrics.Runtime{}
	for _, d := range engine.Known() {
		for _, value := range d.EngineTypes {
			all[value] = d.Runtime
		}
	}
	return all
}()

// usualPorts lists the default ports of engines, in this order: vLLM, trtllm-serve, NIM and Dynamo's frontend;
// llama.cpp; SGLang; TGI in its image and outside; Triton's metrics; LMDeploy; Ollama.
var usualPorts = []int{8000, 8080, 30000, 80, 3000, 8002, 23333, 11434}

// portOption matches the command-line option for the port of an engine, or for the port of Triton's metrics.
var portOption = regexp.MustCompile(`(?:^|\s)--(?:http-|http_|server-|metrics-)?port(?:=|\s+)(\S+)`)

// rayStart matches the command that starts Ray, because its --port is not the engine's port.
var rayStart = regexp.MustCompile(`ray start[^;&|]*`)

// portVariables lists the variables with the port of llama.cpp, NIM, Dynamo (workers, frontend), TGI and Ollama.
// Ollama's variable has the whole address.
var portVariables = []string{"LLAMA_ARG_PORT", "NIM_SERVER_PORT", "DYN_SYSTEM_PORT", "DYN_HTTP_PORT", "PORT", "OLLAMA_HOST"}

// maxPorts limits the number of ports of one pod that the exporter probes.
const maxPorts = 16

// pod has the fields of a Pod that discovery needs.
type pod struct {
	Metadata struct {
		Name        string            `json:"name"`
		UID         string            `json:"uid"`
		Namespace   string            `json:"namespace"`
		Labels      map[string]string `json:"labels"`
		Annotations map[string]string `json:"annotations"`

		CreationTimestamp string `json:"creationTimestamp"`
		DeletionTimestamp string `json:"deletionTimestamp"`
		OwnerReferences   []struct {
			Kind       string `json:"kind"`
			Name       string `json:"name"`
			Controller bool   `json:"controller"`
		} `json:"ownerReferences"`
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

		Conditions []struct {
			Type   string `json:"type"`
			Status string `json:"status"`
		} `json:"conditions"`
		ContainerStatuses     []containerStatus `json:"containerStatuses"`
		InitContainerStatuses []containerStatus `json:"initContainerStatuses"`
	} `json:"status"`
}

type containerStatus struct {
	Name    string `json:"name"`
	Ready   bool   `json:"ready"`
	ImageID string `json:"imageID"` // ends in the digest of the image once the container has run
}

type container struct {
	Name          string   `json:"name"`
	Image         string   `json:"image"`
	Command       []string `json:"command"`
	Args          []string `json:"args"`
	RestartPolicy string   `json:"restartPolicy"`
	Ports         []struct {
		ContainerPort int    `json:"containerPort"`
		Protocol      string `json:"protocol"`
	} `json:"ports"`
	Env []struct {
		Name  string `json:"name"`
		Value string `json:"value"`
	} `json:"env"`
	Resources struct {
		Limits map[string]any `json:"limits"`
		Claims []struct{}     `json:"claims"`
	} `json:"resources"`
}

// places returns the places in the pods of a node where engines may answer.
func places(pods []*pod, node string, log *slog.Logger, s *sockets) []Place {
	slices.SortFunc(pods, func(a, b *pod) int { return cmp.Compare(a.name(), b.name()) })
	var all []Place
	for _, p := range pods {
		if p.Spec.NodeName != node || p.Status.Phase != "Running" || p.address() == "" {
			continue
		}
		found, err := p.places()
		if err != nil {
			log.Warn("a pod has an invalid annotation and is skipped", "pod", p.name(), "err", err)
		}
		all = append(all, found...)
	}
	s.settle(all)
	return all
}

func (p *pod) name() string { return p.Metadata.Namespace + "/" + p.Metadata.Name }

// address returns the address at which the pod's ports are reached.
func (p *pod) address() string {
	if p.Spec.HostNetwork {
		return cmp.Or(p.Status.HostIP, p.Status.PodIP)
	}
	return p.Status.PodIP
}

// places returns the ports of a pod at which an engine may answer. Only pods that have a GPU or declare an engine are
// probed.
func (p *pod) places() ([]Place, error) {
	notes := p.Metadata.Annotations
	declared, err := ports(notes[AnnotationPort], AnnotationPort)
	if err != nil {
		return nil, err
	}
	if err := checkAddress(notes); err != nil {
		return nil, err
	}
	runtimeName := cmp.Or(notes[AnnotationEngine], string(p.engineType()))
	if notes[AnnotationScrape] == "false" || len(declared) == 0 && runtimeName == "" && !p.holdsGPU() {
		return nil, nil
	}

	var all []Place
	if len(declared) > 0 {
		owners := p.owners()
		for _, port := range declared {
			at := p.place(candidate{port: port, of: owners[port]})
			at.Declared, at.Target.Engine = true, runtimeName
			all = append(all, at)
		}
		return all, nil
	}
	candidates := p.candidates()
	for _, c := range candidates {
		at := p.place(c)
		at.LeaveAlone = p.sleeper(c.of)
		if c.port == 0 {
			at.LeaveAlone = "its pod is on the node's network and names no port: declare the engine's port with " + AnnotationPort
		}
		// If a pod names its engine and has one port, it needs no probe.
		if at.LeaveAlone == "" && runtimeName != "" && len(candidates) == 1 && c.rank != ofOther {
			at.Declared, at.Target.Engine = true, runtimeName
		}
		all = append(all, at)
	}
	return all, nil
}

// checkAddress refuses annotations that give no valid address.
func checkAddress(notes map[string]string) error {
	switch scheme, path := notes[AnnotationScheme], notes[AnnotationPath]; {
	case scheme != "" && scheme != "http" && scheme != "https":
		return fmt.Errorf("%s: %q is neither http nor https", AnnotationScheme, scheme)
	case path != "" && path[0] != '/':
		return fmt.Errorf("%s: %q does not begin with a slash", AnnotationPath, path)
	}
	return nil
}

// place describes the engine that may answer at a port.
func (p *pod) place(c candidate) Place {
	at := Place{rank: c.rank, uid: p.Metadata.UID, Target: engine.TargetConfig{
		URL:    p.url(c),
		Labels: map[string]string{metrics.LabelNamespace: p.Metadata.Namespace, metrics.LabelPod: p.Metadata.Name},
	}}
	if c.of != nil {
		at.Target.Labels[metrics.LabelContainer] = c.of.Name
		at.Target.Image, at.Target.Command = p.image(c.of), c.of.arguments()
	}
	if role := p.Metadata.Labels[roleLabel]; role == "prefill" || role == "decode" {
		at.Target.Labels[metrics.LabelRole] = role
	}
	return at
}

// url returns the address of a port. The annotations set the path and the scheme. The exporter's own annotations take
// precedence over Prometheus' annotations.
func (p *pod) url(c candidate) string {
	notes := p.Metadata.Annotations
	path, scheme := notes[AnnotationPath], notes[AnnotationScheme]
	if c.hinted {
		if given := notes[prometheusPath]; strings.HasPrefix(given, "/") {
			path = cmp.Or(path, given)
		}
		if notes[prometheusScheme] == "https" {
			scheme = cmp.Or(scheme, "https")
		}
	}
	return cmp.Or(scheme, "http") + "://" + strings.TrimSuffix(net.JoinHostPort(p.address(), strconv.Itoa(c.port)), ":0") + path
}

// image returns the image of a container, with the beginning of its digest, because a tag may move to another image.
func (p *pod) image(of *container) string {
	for _, s := range slices.Concat(p.Status.ContainerStatuses, p.Status.InitContainerStatuses) {
		if _, digest, ok := strings.Cut(s.ImageID, "@sha256:"); ok && s.Name == of.Name && len(digest) >= 12 && !strings.Contains(of.Image, "@") {
			return of.Image + "@sha256:" + digest[:12]
		}
	}
	return of.Image
}

// candidate describes a port at which an engine may answer.
type candidate struct {
	port   int        // 0 means a container on the node's network that names no port
	of     *container // nil if unknown
	rank   rank
	hinted bool // Prometheus' annotations for path and scheme apply to this port
}

// candidates returns the ports at which an engine may answer, in the order of probing. The port in Prometheus'
// annotation comes first. Next come the ports of containers with a GPU: the ports in their options and declarations or,
// without any, the usual ports, except on the node's network. The declared ports of other containers come last.
func (p *pod) candidates() (all []candidate) {
	owners, engines := p.owners(), p.engines()
	hinted, err := ports(p.Metadata.Annotations[prometheusPort], prometheusPort)
	none := err != nil || len(hinted) == 0
	add := func(port int, of *container, otherwise rank) {
		c := candidate{port, cmp.Or(owners[port], of), otherwise, slices.Contains(hinted, port)}
		switch {
		case port != 0 && slices.ContainsFunc(all, func(other candidate) bool { return other.port == port }) || len(all) == maxPorts:
			return
		case slices.Contains(engines, c.of):
			c.rank = ofEngine
			c.hinted = c.hinted || none
		case c.of != nil && c.rank == ofEngine:
			c.rank = ofOther
		}
		all = append(all, c)
	}
	if err == nil {
		for _, port := range hinted {
			add(port, only(p.running()), ofAnnotation)
		}
	}
	for _, c := range engines {
		named := c.ports()
		switch {
		case named != nil:
			for _, port := range named {
				add(port, c, ofEngine)
			}
		case p.Spec.HostNetwork:
			if none {
				add(0, c, ofEngine)
			}
		default:
			for _, port := range usualPorts {
				add(port, only(engines), ofEngine)
			}
		}
	}
	for _, c := range p.running() {
		for _, port := range c.ports() {
			add(port, c, ofOther)
		}
	}
	return all
}

// owners maps ports to the containers that name them.
func (p *pod) owners() map[int]*container {
	owners := map[int]*container{}
	for _, c := range slices.Concat(p.engines(), p.running()) {
		for _, port := range c.ports() {
			owners[port] = cmp.Or(owners[port], c)
		}
	}
	return owners
}

// engines returns the containers that have a GPU. In a pod without a GPU, it returns the regular containers.
func (p *pod) engines() (all []*container) {
	for i := range p.Spec.Containers {
		all = append(all, &p.Spec.Containers[i])
	}
	if p.holdsGPU() {
		all = slices.DeleteFunc(p.running(), func(c *container) bool { return !c.holdsGPU() })
	}
	return all
}

// variables returns the environment variables whose values are in the pod's spec.
func (c *container) variables() map[string]string {
	values := map[string]string{}
	for _, e := range c.Env {
		values[e.Name] = e.Value
	}
	return values
}

// expand replaces variables by their values, in the syntax of Kubernetes ($(NAME)) and of shells.
func expand(text string, values map[string]string) string {
	if !strings.Contains(text, "$") {
		return text
	}
	return os.Expand(strings.NewReplacer("$(", "${", ")", "}").Replace(text), func(name string) string { return values[name] })
}

// word matches a word of a shell script, and quote matches the quotes in a word. A backslash at the end of a line
// continues the line. Other backslashes are not interpreted.
var (
	shell      = regexp.MustCompile(`(?:^|/)(?:ba|da|a|z)?sh$`)
	runsScript = regexp.MustCompile(`^-[a-z]*c$`)
	word       = regexp.MustCompile(`(?:[^\s"']|"[^"]*"|'[^']*')+`)
	quote      = regexp.MustCompile(`"[^"]*"|'[^']*'`)
)

// arguments returns the words of the container's command line, if the pod's spec has them. A shell script is split into
// words, and the engine's dialect finds the options among the words.
func (c *container) arguments() (all []string) {
	values := c.variables()
	for _, argument := range slices.Concat(c.Command, c.Args) {
		if n := len(all); n < 2 || !shell.MatchString(all[n-2]) || !runsScript.MatchString(all[n-1]) {
			all = append(all, expand(argument, values))
			continue
		}
		for _, w := range word.FindAllString(strings.ReplaceAll(argument, "\\\n", " "), -1) {
			all = append(all, expand(quote.ReplaceAllStringFunc(strings.TrimRight(w, ";&"), func(q string) string { return q[1 : len(q)-1] }),
				values))
		}
	}
	return all
}

// ports returns the TCP ports on a container's command line and in its variables, and the ports that the container
// declares.
func (c *container) ports() (all []int) {
	values := c.variables()
	told := []string{}
	line := rayStart.ReplaceAllString(strings.Join(slices.Concat(c.Command, c.Args), " "), "")
	for _, m := range portOption.FindAllStringSubmatch(line, -1) {
		told = append(told, expand(strings.Trim(m[1], `"';`), values))
	}
	for _, name := range portVariables {
		told = append(told, values[name][strings.LastIndexByte(values[name], ':')+1:])
	}
	for _, text := range told {
		if port, err := strconv.ParseUint(text, 10, 16); err == nil && port != 0 {
			all = append(all, int(port))
		}
	}
	for _, port := range c.Ports {
		if port.Protocol == "" || port.Protocol == "TCP" {
			all = append(all, port.ContainerPort)
		}
	}
	return all
}

// running returns the containers that run at the same time, including init containers that never finish.
func (p *pod) running() (all []*container) {
	for i := range p.Spec.Containers {
		all = append(all, &p.Spec.Containers[i])
	}
	for i := range p.Spec.InitContainers {
		if p.Spec.InitContainers[i].RestartPolicy == "Always" {
			all = append(all, &p.Spec.InitContainers[i])
		}
	}
	return all
}

// only returns the single element of a slice. If the slice has no element or several elements, it returns the zero value.
func only[T any](all []T) (one T) {
	if len(all) == 1 {
		one = all[0]
	}
	return one
}

func (p *pod) engineType() metrics.Runtime {
	for _, label := range engineTypes {
		if r, ok := runtimeOf[p.Metadata.Labels[label]]; ok {
			return r
		}
	}
	return ""
}

// holdsGPU reports whether a container requests a device of NVIDIA, or any device through a claim.
func (p *pod) holdsGPU() bool { return slices.ContainsFunc(p.running(), (*container).holdsGPU) }

func (c *container) holdsGPU() bool {
	for resource := range c.Resources.Limits {
		if strings.HasPrefix(resource, "nvidia.com/") {
			return true
		}
	}
	return len(c.Resources.Claims) > 0
}

// These options make llama.cpp's server unload the model after a time without requests. A reading of the metrics counts
// as a request.
const (
	sleepFlag     = "--sleep-idle-seconds"
	sleepVariable = "LLAMA_ARG_SLEEP_IDLE_SECONDS"
)

// sleeper explains why a container must not be probed. If the container is unknown, the whole pod is considered.
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
				return sleepVariable + ": each scrape would keep the model loaded; declare the port with " + AnnotationPort +
					" to scrape it all the same"
			}
		}
	}
	return ""
}

// sleeps reports whether a command line makes llama.cpp's server sleep when idle. The command line may be a shell
// command.
func sleeps(args []string) bool {
	line := strings.Join(args, " ")
	return strings.Contains(line, sleepFlag) && !strings.Contains(line, sleepFlag+" -1") && !strings.Contains(line, sleepFlag+"=-1")
}

// ports parses a list of ports.
func ports(text, name string) ([]int, error) {
	var all []int
	for field := range strings.SplitSeq(text, ",") {
		field = strings.TrimSpace(field)
		if field == "" {
			continue
		}
		port, err := strconv.ParseUint(field, 10, 16)
		if err != nil || port == 0 {
			return nil, fmt.Errorf("%s: %q is not a port: write it as 8000 or 8000,8001", name, field)
		}
		all = append(all, int(port))
	}
	if len(all) > maxPorts {
		return nil, fmt.Errorf("%s: %d ports, more than %d", name, len(all), maxPorts)
	}
	return all, nil
}
