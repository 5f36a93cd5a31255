package discovery

import (
	"maps"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	"github.com/llm-node-exporter/llm-node-exporter/internal/proc"
)

// sockets determines which pod owns an address that several pods name. Pods on the node's network share the node's
// ports, and a metrics page does not name its pod.
type sockets struct {
	procfs    string
	contested bool              // several pods named one address at the last reading
	owners    map[string]string // by contested address: the last pod that was seen to listen
}

// settle keeps a contested address only in the pod that owns the address. If only one pod declares the address as an
// engine's, this pod is the owner. Otherwise, the only pod whose processes listen at the address is the owner. While no
// process listens there, the last owner stays.
func (s *sockets) settle(all []Place) {
	claims := map[string][]*Place{}
	for i := range all {
		if u, err := url.Parse(all[i].Target.URL); err == nil && all[i].LeaveAlone == "" {
			claims[u.Host] = append(claims[u.Host], &all[i])
		}
	}
	maps.DeleteFunc(claims, func(_ string, of []*Place) bool { return len(podsOf(of)) == 1 })
	s.contested = len(claims) > 0
	if !s.contested {
		return
	}
	byPod := s.listening(slices.Concat(slices.Collect(maps.Values(claims))...))
	owners := map[string]string{}
	for address, of := range claims {
		owner := only(podsOf(slices.DeleteFunc(slices.Clone(of), func(p *Place) bool { return !p.Declared })))
		why := "several pods name " + address + ", and it is unknown which of them listens: declare the port with " + AnnotationPort +
			" on that pod"
		if owner == "" {
			if owner = only(listenAt(address, byPod)); owner == "" && slices.Contains(podsOf(of), s.owners[address]) {
				owner = s.owners[address]
			}
			if owner != "" {
				owners[address] = owner
				why = "pod " + strings.ReplaceAll(owner, "\xff", "/") + " listens at " + address
			}
		}
		for _, p := range of {
			if p.pod() != owner {
				p.Declared, p.LeaveAlone = false, why
			}
		}
	}
	s.owners = owners
}

// listening returns the addresses at which the processes of these places' pods listen, by pod.
func (s *sockets) listening(of []*Place) map[string][]netip.AddrPort {
	pods := map[string]string{} // by uid
	for _, p := range of {
		pods[p.uid] = p.pod()
	}
	scan, found := proc.New(s.procfs), map[string][]netip.AddrPort{}
	for pid := range scan.Processes() {
		if _, uid := scan.Container(pid); uid != "" && pods[uid] != "" {
			found[pods[uid]] = append(found[pods[uid]], scan.Listening(pid)...)
		}
	}
	return found
}

// listenAt returns the pods that listen at host:port.
func listenAt(address string, byPod map[string][]netip.AddrPort) (pods []string) {
	at, _ := netip.ParseAddrPort(address)
	for pod, sockets := range byPod {
		if slices.ContainsFunc(sockets, func(s netip.AddrPort) bool {
			return s.Port() == at.Port() && (s.Addr().IsUnspecified() || s.Addr() == at.Addr())
		}) {
			pods = append(pods, pod)
		}
	}
	return pods
}

// podsOf returns each pod of the places once.
func podsOf(places []*Place) (pods []string) {
	for _, p := range places {
		if !slices.Contains(pods, p.pod()) {
			pods = append(pods, p.pod())
		}
	}
	return pods
}
