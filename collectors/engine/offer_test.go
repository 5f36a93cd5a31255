package engine

import (
	"maps"
	"reflect"
	"strings"
	"testing"
)

// TestOffers checks which requests a metrics page permits, and why other requests are not sent.
func TestOffers(t *testing.T) {
	models := map[string]string{"/v1/models": `{"data":[{"id":"file.gguf"}]}`}
	for _, c := range []struct {
		page      string
		documents map[string]string
		labels    map[string]string
		want      []Offer
	}{
		{page: "vllm/v0.9.1.prom", want: []Offer{{API: "completions", Name: "gemma-3-27b", Model: "gemma-3-27b"}}},
		{page: "lmcache/in-vllm-v0.24.0.prom", want: []Offer{{API: "completions", Name: "granite-6", Model: "granite-6"}}},
		{
			page: "vllm/v0.9.1.prom", labels: map[string]string{"model_name": "chat", "namespace": "prod", "pod": "a", "container": "engine"},
			want: []Offer{{API: "completions", Name: "gemma-3-27b", Model: "chat", Namespace: "prod", Pod: "a", Container: "engine"}},
		},
		{page: "llamacpp/b5500.prom", documents: models, want: []Offer{{API: "completions", Name: "file.gguf", Model: "file.gguf"}}},
		{page: "llamacpp/b5500.prom", want: []Offer{{API: "completions", Declined: DeclinedModel}}},
		{
			page: "vllm/v0.9.1.prom", labels: map[string]string{"role": "prefill"},
			want: []Offer{{API: "completions", Name: "gemma-3-27b", Model: "gemma-3-27b", Declined: DeclinedRole}},
		},
		{page: "sglang/v0.5.12-decode.prom", want: []Offer{{
			API: "completions", Name: "deepseek-v3-pd", Model: "deepseek-v3-pd",
			Declined: DeclinedRole,
		}}},
		{page: "triton/vllm-backend.prom", want: []Offer{{Declined: DeclinedEndpoint}}},
		{page: "smg/v1.5.0-loaded.prom", want: []Offer{{Declined: DeclinedGateway}}},
		{page: "other/node-exporter.prom", want: []Offer{{Unread: true}}},
		{page: "ollama/0.12.6-two-on-cpu.json", want: []Offer{
			{API: "ollama", Name: "gemma3:27b", Model: "gemma3:27b"},
			{API: "ollama", Name: "nomic-embed-text:latest", Model: "nomic-embed-text:latest"},
		}},
		{page: "ollama/0.12.6-idle.json", want: []Offer{{API: "ollama", Declined: DeclinedModel}}},
	} {
		e := serve(t, readPage(t, c.page))
		if strings.HasPrefix(c.page, "ollama") {
			e = serveOllama(t, readPage(t, c.page))
		}
		maps.Copy(e.documents, c.documents)
		all, err := New(Config{Targets: []TargetConfig{{URL: e.URL + "/", Labels: c.labels}}, Log: discard})
		if err != nil {
			t.Fatal(err)
		}
		if before := all.Offers(); len(before) != 1 || !before[0].Unread || before[0].Server != host(e) {
			t.Errorf("%s, before it is read: %+v", c.page, before)
		}
		all.Scrape(t.Context())
		for i := range c.want {
			c.want[i].URL, c.want[i].Server, c.want[i].Labels = e.URL, host(e), c.labels
		}
		if got := all.Offers(); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s:\n got %+v\nwant %+v", c.page, got, c.want)
		}
		if known, ok := all.Look(t.Context(), Offer{Server: host(e)}); !ok || known.Server != host(e) ||
			c.want[0].Unread != (known.Reason != "") {
			t.Errorf("%s: %t %+v", c.page, ok, known)
		}
		if _, ok := all.Look(t.Context(), Offer{Server: "elsewhere:1", URL: e.URL}); ok {
			t.Error("a target that is not there is known")
		}
	}
}
