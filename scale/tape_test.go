package scale

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/prompb"
	"github.com/prometheus/prometheus/tsdb/chunkenc"

	"github.com/llm-node-exporter/llm-node-exporter/drill/incident"
	"github.com/llm-node-exporter/llm-node-exporter/drill/play"
	"github.com/llm-node-exporter/llm-node-exporter/drill/world"
	"github.com/llm-node-exporter/llm-node-exporter/metrics"
	"github.com/llm-node-exporter/llm-node-exporter/rules"
)

// scrapeEvery separates two scrapes of an exporter.
const scrapeEvery = play.ScrapeInterval

// calm is the time without a fault at the start of a tape.
const calm = 12 * time.Minute

// A tape holds the exporter's series about one simulated engine, from the start of a play to its end. Models play
// it under their own names.
type tape struct {
	series []labels.Labels
	values [][]float64 // by series and scrape
	has    [][]bool
}

// A fault is an event at the only engine of a model.
type fault struct {
	name string
	do   func(r *world.Replica)
}

// faults lists the faults that page within minutes.
var faults = []fault{
	{"every request fails", func(r *world.Replica) { r.Engine.Broken = true }},
	{"the engine hangs", func(r *world.Replica) { r.Engine.Wedged = true }},
	{"the engine is gone", func(r *world.Replica) { r.Restart(24 * time.Hour) }},
}

// record plays a fault in virtual time, through the exporter's own code. Without a fault, nothing happens. Buckets of histograms are
// dropped, as the exporter does with "histograms: drop".
func record(t *testing.T, lasts time.Duration, do func(r *world.Replica)) *tape {
	t.Helper()
	in := incident.Incident{Name: "scale", Fleet: onlyReplica(t), History: calm, Lasts: lasts}
	p, err := play.New(in, play.Options{Seed: 1, Groups: []rules.Group{}, WithoutGPUs: true, Relabel: func(l labels.Labels) labels.Labels {
		if strings.HasSuffix(l.Get(labels.MetricName), "_bucket") {
			return labels.EmptyLabels()
		}
		return l
	}})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	for at := time.Duration(0); at <= calm+lasts; at += scrapeEvery {
		if at == calm && do != nil {
			p.World.Advance(at)
			do(p.World.Replicas[0])
		}
		if err := p.Step(at); err != nil {
			t.Fatal(err)
		}
	}
	return stored(t, p, int((calm+lasts)/scrapeEvery)+1)
}

// onlyReplica returns the drill's model with one engine.
func onlyReplica(t *testing.T) world.Fleet {
	all := incident.Incidents()
	i := slices.IndexFunc(all, func(in incident.Incident) bool { return in.Name == "only-replica-crashes" })
	if i < 0 {
		t.Fatal("the drill has no model with one engine any more")
	}
	return all[i].Fleet
}

// stored reads everything that a play has scraped.
func stored(t *testing.T, p *play.Play, scrapes int) *tape {
	from := p.World.At(0)
	q, err := p.Prometheus.DB().Querier(from.UnixMilli(), from.Add(time.Duration(scrapes)*scrapeEvery).UnixMilli())
	if err != nil {
		t.Fatal(err)
	}
	defer q.Close()
	var all tape
	found := q.Select(context.Background(), true, nil, labels.MustNewMatcher(labels.MatchNotEqual, labels.MetricName, ""))
	for found.Next() {
		s := found.At()
		values, has := make([]float64, scrapes), make([]bool, scrapes)
		it := s.Iterator(nil)
		for it.Next() == chunkenc.ValFloat {
			at, v := it.At()
			i := int(time.UnixMilli(at).Sub(from) / scrapeEvery)
			values[i], has[i] = v, true
		}
		all.series, all.values, all.has = append(all.series, s.Labels()), append(all.values, values), append(all.has, has)
	}
	if err := found.Err(); err != nil {
		t.Fatal(err)
	}
	return &all
}

// A service is a model that plays a tape under its own name.
type service struct {
	tape    *tape
	skip    int // scrapes of the tape before the first
	cluster string
	labels  [][]prompb.Label // by series
}

// newService names a model. The label cluster is the cluster of its tenant.
func newService(i int, cluster string, from *tape, skip int) *service {
	s := &service{tape: from, skip: skip, cluster: cluster}
	node := fmt.Sprintf("node-%04d", i)
	for _, l := range from.series {
		b := labels.NewBuilder(l).Set(metrics.LabelCluster, cluster)
		for name, value := range map[string]string{
			metrics.LabelModel: fmt.Sprintf("model-%04d", i), metrics.LabelPod: fmt.Sprintf("model-%04d-0", i),
			metrics.LabelInstance: node + ":9844", metrics.LabelServer: node + ":8000",
		} {
			if l.Has(name) {
				b.Set(name, value)
			}
		}
		s.labels = append(s.labels, prompb.FromLabels(b.Labels(), nil))
	}
	return s
}

// scrape adds the exporter's series at a scrape.
func (s *service) scrape(n int, at time.Time, to []prompb.TimeSeries) []prompb.TimeSeries {
	n += s.skip
	for i, l := range s.labels {
		if n < len(s.tape.has[i]) && s.tape.has[i][n] {
			to = append(to, prompb.TimeSeries{Labels: l, Samples: []prompb.Sample{{Value: s.tape.values[i][n], Timestamp: at.UnixMilli()}}})
		}
	}
	return to
}
