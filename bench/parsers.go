package main

import (
	"bytes"
	"errors"
	"io"
	"net"
	"net/http"

	vm "github.com/VictoriaMetrics/VictoriaMetrics/lib/protoparser/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/textparse"
)

// parsers lists the parsers from which a proxy of metrics pages can be built. Each parser reads a metrics page and
// writes the series that a proxy would forward.
var parsers = map[string]func(page []byte, to io.Writer) error{
	"expfmt":     throughExpfmt,
	"textparse":  throughTextparse,
	"vm-parser":  throughVictoriaMetrics,
	"fetch-only": func([]byte, io.Writer) error { return nil },
}

// throughExpfmt decodes a metrics page and encodes it again, as programs do that merge metrics pages.
func throughExpfmt(page []byte, to io.Writer) error {
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(bytes.NewReader(page))
	if err != nil {
		return err
	}
	encoder := expfmt.NewEncoder(to, expfmt.NewFormat(expfmt.TypeTextPlain))
	for _, f := range families {
		if err := encoder.Encode(f); err != nil {
			return err
		}
	}
	return nil
}

// throughTextparse uses only Prometheus' parser. It reads each value and builds no labels.
func throughTextparse(page []byte, _ io.Writer) error {
	parser := textparse.NewPromParser(page, labels.NewSymbolTable(), false)
	for {
		entry, err := parser.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if entry == textparse.EntrySeries {
			parser.Series()
		}
	}
}

// throughVictoriaMetrics uses only vmagent's parser, which reads names, labels and values.
func throughVictoriaMetrics(page []byte, _ io.Writer) error {
	var rows vm.Rows
	var bad error
	rows.UnmarshalWithErrLogger(string(page), func(s string) { bad = errors.New(s) })
	return bad
}

// serveParser answers scrapes until it is killed. For each scrape, it fetches all targets, one after the other, and
// passes their pages through a parser.
func serveParser(name, address string, targets []string) error {
	through := parsers[name]
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.Handle("/self", promhttp.Handler())
	var page bytes.Buffer
	mux.HandleFunc("/metrics", func(w http.ResponseWriter, r *http.Request) {
		for _, target := range targets {
			if err := read(r.Context(), "http://"+target+"/metrics", &page); err != nil {
				http.Error(w, err.Error(), http.StatusBadGateway)
				return
			}
			if err := through(page.Bytes(), w); err != nil {
				http.Error(w, err.Error(), http.StatusBadGateway)
				return
			}
		}
	})
	return http.Serve(listener, mux)
}
