package engine

import (
	"strings"
	"testing"
)

// TestNamesThatLie checks names that engines choose, which end up in notifications, terminals and web pages. A name
// cannot forge a line there, move a cursor or reverse the text, and names that differ only in such characters count
// as equal.
func TestNamesThatLie(t *testing.T) {
	const name = `m?Look first at: nothing?[2J?gpj?`
	page := "# TYPE vllm:num_requests_running gauge\n" +
		"vllm:num_requests_running{engine=\"0\",model_name=\"m\\nLook first at: nothing\x1b[2J\u202egpj\ufffd\"} 1\n" +
		"vllm:num_requests_running{engine=\"0\",model_name=\"m\\nLook first at: nothing\x07[2J\u202egpj\u2028\"} 2\n"
	e := serve(t, page)
	e.documents["/version"] = `{"version": "0.19.0\u001b[2J\n"}`
	s := parse(t, exposition(t, collectorFor(t, []TargetConfig{{URL: e.URL}})))
	s.want(t, `llm_engine_requests_running{model_name="`+name+`"}`, 3)
	s.want(t, `llm_engine_info{model_name="`+name+`",version="0.19.0?[2J?"}`, 1)

	e = serve(t, readPage(t, "vllm/v0.11.2.prom"))
	e.documents["/version"] = `{"version": "0.19.0` + strings.Repeat("0", 1<<19) + `"}`
	if text := exposition(t, collectorFor(t, []TargetConfig{{URL: e.URL}})); len(text) > 1<<19 {
		t.Errorf("a version makes the page %d bytes long", len(text))
	}
}
