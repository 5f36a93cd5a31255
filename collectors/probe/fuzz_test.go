package probe

import (
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/llm-node-exporter/llm-node-exporter/metrics"
)

// FuzzAnswer checks that reading any answer, in any pieces, ends with an outcome or an error, costs no more than an
// answer may, and never takes an empty answer for a real one.
func FuzzAnswer(f *testing.F) {
	names := slices.Sorted(maps.Keys(apis))
	for i := range names {
		for _, answer := range []string{
			word("one") + finish + usage("9", "1") + done,
			`{"model":"m","message":{"role":"assistant","content":"one"},"done":true,"eval_count":1}` + "\n",
			`data: {"token":{"id":1,"text":"one","special":false},"generated_text":"one","details":{"finish_reason":"length","generated_tokens":1}}` + "\n\n",
			`data: {"model_name":"m","text_output":"one"}` + "\n\n",
			`{"error":{"message":"boom"}}`,
			": keep-alive\n\ndata: [DONE]\n\n",
		} {
			f.Add(uint8(i), answer, "text/event-stream", false)
			f.Add(uint8(i), answer, "application/json", true)
		}
	}
	f.Fuzz(func(t *testing.T, i uint8, answer, kind string, slowly bool) {
		var body io.Reader = strings.NewReader(answer)
		if slowly {
			body = iotest.OneByteReader(body)
		}
		resp := &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {kind}}, Body: io.NopCloser(body)}
		var clock time.Duration
		var r result
		const maxTokens = 8
		err := r.read(resp, apis[names[int(i)%len(names)]], maxTokens, func() time.Duration { clock += time.Millisecond; return clock })
		switch {
		case r.outcome == "" && err == nil:
			t.Error("neither an outcome nor an error")
		case r.outcome == metrics.ProbeOK && !r.whole():
			t.Error("ok without an end")
		case r.token > clock || r.visible > clock || r.end > clock:
			t.Errorf("times %s, %s and %s of %s", r.token, r.visible, r.end, clock)
		case len(r.arrivals) > 2*maxTokens+9:
			t.Errorf("%d arrivals", len(r.arrivals))
		case r.prompt < 0 || r.completion < 0 || r.prompt > 10*maxPromptWords || r.completion > 10*maxPromptWords:
			t.Errorf("%d and %d tokens", r.prompt, r.completion)
		}
		for _, gap := range r.gaps() {
			if gap < 0 {
				t.Errorf("%v seconds between tokens", gap)
			}
		}
	})
}
