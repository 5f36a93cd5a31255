package engine

import (
	"cmp"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/llm-node-exporter/llm-node-exporter/collectors/scrape"
	"github.com/llm-node-exporter/llm-node-exporter/internal/golden"
)

const (
	namesFile = "testdata/names.tsv"
	isMapped  = "mapped"
)

// A known name is a line of names.tsv. A name that ends in * stands for all names with this beginning.
type knownName struct{ engine, version, file, name, use string }

func (k knownName) is(name string) bool {
	prefix, all := strings.CutSuffix(k.name, "*")
	return all && strings.HasPrefix(name, prefix) || scrape.FamilyKey(k.name) == scrape.FamilyKey(name)
}

// of reports whether a name belongs to a dialect's engine. Names of a server also belong to its backends, as in
// facts.tsv.
func (k knownName) of(d *Dialect) bool { return strings.HasPrefix(string(d.Runtime)+"_", k.engine+"_") }

// readNames returns the comments and the lines of names.tsv.
func readNames(t testing.TB) (head string, all []knownName) {
	body, err := os.ReadFile(namesFile)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(body)) {
		c := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
		if strings.HasPrefix(line, "#") || c[0] == "engine" {
			head += line
			continue
		}
		if len(c) != 5 {
			t.Fatalf("names.tsv: %d columns in %q", len(c), line)
		}
		all = append(all, knownName{c[0], c[1], c[2], c[3], c[4]})
	}
	return head, all
}

// reads returns the names that a dialect reads for a number or a state. Names that only show the version are not
// among them.
func (d *Dialect) reads() map[string]bool {
	all := map[string]bool{}
	add := func(names ...string) {
		for _, n := range names {
			if n != "" {
				all[scrape.FamilyKey(n)] = true
			}
		}
	}
	for i := range d.Rows {
		r := &d.Rows[i]
		add(r.From)
		add(r.With...)
		if r.Tally != nil {
			for _, c := range r.Tally.Of {
				add(c.From)
			}
		}
	}
	add(d.Ready)
	for _, s := range d.Serves {
		add(s.Family)
	}
	if d.Server != nil {
		add(d.Server.Active.Name, d.Server.Files.Name, d.Server.Answered.Name)
	}
	return all
}

// namesRead returns, for each engine, the names that its dialects read. Several dialects may share a runtime.
func namesRead() map[string]map[string]bool {
	all := map[string]map[string]bool{"*": {"process_start_time_seconds": true, scrape.FamilyKey(cpuTime): true}} // see compiler.process
	for _, d := range builtin {
		runtime := string(d.Runtime)
		if all[runtime] == nil {
			all[runtime] = map[string]bool{}
		}
		maps.Copy(all[runtime], d.reads())
	}
	return all
}

// TestNamesAreMappedOrIgnored checks that each name of an engine's newest source is read, or has a reason why it is
// not. The dialects define which names are mapped: run with -update after a dialect has changed. A run with -update
// leaves a blank where a reason is needed.
func TestNamesAreMappedOrIgnored(t *testing.T) {
	head, all := readNames(t)
	read, used, seen := namesRead(), map[string]bool{}, map[string]bool{}
	for i := range all {
		k := &all[i]
		if k.use = strings.TrimSpace(k.use); read[k.engine][scrape.FamilyKey(k.name)] {
			k.use = isMapped
		} else if k.use == isMapped {
			k.use = ""
		}
		why, isIgnored := strings.CutPrefix(k.use, "ignored: ")
		if used[why] = true; k.use != isMapped && (!isIgnored || ignored[why] == "") {
			t.Errorf("%s: %s is not read, and has no reason (%q): map it, or ignore it for one of %q", k.engine, k.name, k.use,
				slices.Sorted(maps.Keys(ignored)))
		}
		key := k.engine + " " + scrape.FamilyKey(k.name)
		if seen[key] {
			t.Errorf("%s: %s stands twice", k.engine, k.name)
		}
		seen[key] = true
		if read[k.engine] == nil && k.engine != "*" || k.version == "" || k.file == "" {
			t.Errorf("names.tsv: no such engine, or no version or source: %v", *k)
		}
	}
	for why := range ignored {
		if !used[why] {
			t.Errorf("no name is ignored for %q", why)
		}
	}
	slices.SortFunc(all, func(a, b knownName) int { return cmp.Or(cmp.Compare(a.engine, b.engine), cmp.Compare(a.name, b.name)) })
	for _, k := range all {
		head += strings.Join([]string{k.engine, k.version, k.file, k.name, k.use}, "\t") + "\n"
	}
	golden.Compare(t, namesFile, head)
}

// over reports whether the facts name the last version of each form of a name.
func (fs facts) over() bool {
	return len(fs) > 0 && !slices.ContainsFunc(fs, func(f fact) bool { return f.until == "" })
}

// TestNamesThatAreReadExist checks that each name that a dialect reads is in the newest source, or that facts.tsv
// names the last version that had it. So this test fails if a release renames a family.
func TestNamesThatAreReadExist(t *testing.T) {
	_, all := readNames(t)
	past := readFacts(t)
	for _, d := range builtin {
		for name := range d.reads() {
			if slices.ContainsFunc(all, func(k knownName) bool { return k.of(d) && scrape.FamilyKey(k.name) == name }) {
				continue
			}
			if !past.find(d, name).over() {
				t.Errorf("%s reads %s, which the newest source lacks: find out its new name, and say in facts.tsv until which version it existed",
					d.Runtime, name)
			}
		}
	}
}

// TestNamesOnPagesAreKnown checks that each name on a metrics page of an engine is in names.tsv or, for an older
// version, in facts.tsv.
func TestNamesOnPagesAreKnown(t *testing.T) {
	_, all := readNames(t)
	past := readFacts(t)
	checked := 0
	check := func(name, body string) {
		clean, err := engineFormat.Sanitise([]byte(body), name, "text/plain")
		if err != nil {
			return
		}
		p, err := engineFormat.Parse(clean, "text/plain", scrape.DefaultLimits)
		if err != nil {
			return
		}
		recognised(t, p) // restores the engine's own names
		var speak []*Dialect
		for _, d := range builtin {
			if d.speaks(p) {
				speak = append(speak, d)
			}
		}
		var unknown []string
		for key, families := range p.Families {
			if base, times := strings.CutSuffix(key, "_created"); times && p.Has(base) {
				continue // when Python's client made the family
			}
			known := len(speak) == 0 || slices.ContainsFunc(all, func(k knownName) bool { return k.engine == "*" && k.is(families[0].Name) })
			for _, d := range speak {
				known = known || past.find(d, key).over() ||
					slices.ContainsFunc(all, func(k knownName) bool {
						return k.of(d) && k.is(families[0].Name)
					})
			}
			if checked++; !known {
				unknown = append(unknown, families[0].Name)
			}
		}
		if slices.Sort(unknown); len(unknown) > 0 {
			t.Errorf("%s: not in names.tsv: %s", name, strings.Join(unknown, " "))
		}
	}
	for _, name := range pages(t) {
		check(name, readPage(t, name))
	}
	for _, glob := range []string{"*/*.prom", "*/*/*.prom"} {
		for _, name := range golden.Recordings(t, glob) {
			if body, err := os.ReadFile(name); err == nil {
				check(name, string(body))
			}
		}
	}
	if checked < 3000 {
		t.Errorf("only %d names on pages were checked", checked)
	}
}
