// Package genai repeats the engines' metrics under the names of OpenTelemetry's semantic conventions for generative AI.
//
// The conventions (open-telemetry/semantic-conventions-genai, docs/gen-ai/gen-ai-metrics.md, stability Development)
// define three histograms of a model server. The bounds stay those of the engine. gen_ai.operation.name is left out,
// because engines do not distinguish chats from completions.
package genai

import (
	"bytes"
	"io"
	"net"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/llm-node-exporter/llm-node-exporter/metrics"
)

// family pairs a family of the vocabulary with the convention's name and help.
type family struct {
	of         *metrics.Family
	name, help string
}

var families = []family{
	{metrics.TimeToFirstToken, "gen_ai_server_time_to_first_token_seconds", "Time to generate the first token of a response."},
	{metrics.TimePerOutputToken, "gen_ai_server_time_per_output_token_seconds", "Time per output token after the first token of a response."},
	{metrics.RequestDuration, "gen_ai_server_request_duration_seconds", "Duration of a request, until its last token."},
}

// Page writes the metrics page of engines, followed by its series under the convention's names.
type Page struct{ io.WriterTo }

// WriteTo implements io.WriterTo. It fails if the metrics page is invalid or cannot be written.
func (p Page) WriteTo(w io.Writer) (int64, error) {
	var page bytes.Buffer
	n, err := p.WriterTo.WriteTo(io.MultiWriter(w, &page))
	if err != nil {
		return n, err
	}
	parser := expfmt.NewTextParser(model.LegacyValidation)
	found, err := parser.TextToMetricFamilies(&page)
	if err != nil {
		return n, err
	}
	out := expfmt.NewEncoder(w, expfmt.NewFormat(expfmt.TypeTextPlain))
	for _, f := range families {
		if repeated := f.repeat(found[f.of.Name]); len(repeated.Metric) > 0 {
			if err := out.Encode(repeated); err != nil {
				return n, err
			}
		}
	}
	return n, nil
}

// repeat renames a family and its labels. It leaves out series of gateways and frontends. The convention's names do not
// show the place of a measurement, so a sum over all series would count each request twice.
func (f family) repeat(of *dto.MetricFamily) *dto.MetricFamily {
	out := &dto.MetricFamily{Name: &f.name, Help: &f.help, Type: dto.MetricType_HISTOGRAM.Enum()}
	for _, m := range of.GetMetric() {
		repeated := &dto.Metric{Histogram: m.Histogram}
		behind := true
		for _, l := range m.Label {
			label := func(name, value string) {
				repeated.Label = append(repeated.Label, &dto.LabelPair{Name: &name, Value: &value})
			}
			switch value := l.GetValue(); l.GetName() {
			case metrics.LabelRuntime:
				label("gen_ai_provider_name", value)
			case metrics.LabelModel:
				label("gen_ai_request_model", value)
			case metrics.LabelServer:
				host, port, err := net.SplitHostPort(value)
				if err != nil {
					host = value
				}
				label("server_address", host)
				if port != "" {
					label("server_port", port)
				}
			case metrics.LabelRole:
				behind = value == "prefill" || value == "decode"
				fallthrough
			default:
				label(l.GetName(), value)
			}
		}
		if behind {
			out.Metric = append(out.Metric, repeated)
		}
	}
	return out
}
