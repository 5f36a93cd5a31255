package engine

import (
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/llm-node-exporter/llm-node-exporter/metrics"
)

// list is the file with the ordered list of dialects.
const list = "dialects.go"

// goFiles parses the files of this package, without its tests.
func goFiles(t *testing.T) (*token.FileSet, map[string]*ast.File) {
	names, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	set, files := token.NewFileSet(), map[string]*ast.File{}
	for _, name := range names {
		if !strings.HasSuffix(name, "_test.go") {
			if files[name], err = parser.ParseFile(set, name, nil, 0); err != nil {
				t.Fatal(err)
			}
		}
	}
	return set, files
}

func ofEngine(file string) bool { return strings.HasPrefix(file, "dialect_") }

// dialectsIn lists the variables of an engine's file that hold a dialect, each with the expression of its runtime.
func dialectsIn(file *ast.File) map[string]ast.Expr {
	all := map[string]ast.Expr{}
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok || len(spec.Values) != 1 {
			return true
		}
		value, ok := spec.Values[0].(*ast.CompositeLit)
		if !ok {
			return true
		}
		for _, e := range value.Elts {
			if kv, ok := e.(*ast.KeyValueExpr); ok && types.ExprString(value.Type) == "Dialect" && types.ExprString(kv.Key) == "Runtime" {
				all[spec.Names[0].Name] = kv.Value
			}
		}
		return true
	})
	return all
}

// TestDialectsAreListed requires every dialect of an engine's file in the list, and its runtime in the vocabulary.
func TestDialectsAreListed(t *testing.T) {
	_, files := goFiles(t)
	listed := map[string]bool{}
	ast.Inspect(files[list], func(n ast.Node) bool {
		if id, ok := n.(*ast.Ident); ok {
			listed[id.Name] = true
		}
		return true
	})
	found := 0
	for name, file := range files {
		if !ofEngine(name) {
			continue
		}
		for dialect, runtime := range dialectsIn(file) {
			found++
			if !listed[dialect] {
				t.Errorf("%s lacks &%s of %s", list, dialect, name)
			}
			if r := types.ExprString(runtime); !strings.HasPrefix(r, "metrics.") {
				t.Errorf("../../metrics/runtime.go lacks %s of %s", r, name)
			}
		}
	}
	if found < len(builtin) {
		t.Errorf("%s lists %d dialects, the engines' files have %d", list, len(builtin), found)
	}
}

// TestEnginesStayInTheirFiles keeps every quirk with its engine: only the engine's file and the list name its runtime, spell
// its name in a string, or use what its file declares.
func TestEnginesStayInTheirFiles(t *testing.T) {
	set, files := goFiles(t)
	info := &types.Info{Uses: map[*ast.Ident]types.Object{}}
	local := types.Config{Error: func(error) {}} // imports stay unresolved, because the package's own declarations are enough
	_, _ = local.Check("engine", set, slices.Collect(maps.Values(files)), info)
	var spellings []string
	for _, d := range builtin {
		if !d.Sidecar { // these accompany any engine, whether it is read or not
			spellings = append(spellings, string(d.Runtime))
		}
	}
	spelt := regexp.MustCompile(`(?i)(^|[^a-z])(` + strings.Join(spellings, "|") + `)([^a-z]|$)`)
	runtimes := map[string]bool{} // as Go expressions
	for name, file := range files {
		if ofEngine(name) {
			for _, runtime := range dialectsIn(file) {
				runtimes[types.ExprString(runtime)] = true
			}
		}
	}
	for name, file := range files {
		if name == list {
			continue
		}
		ast.Inspect(file, func(n ast.Node) bool {
			names := ""
			switch n := n.(type) {
			case *ast.Ident:
				if use := info.Uses[n]; use != nil && use.Pos().IsValid() {
					if home := set.Position(use.Pos()).Filename; ofEngine(home) && home != name {
						names = n.Name + " of " + home
					}
				}
			case *ast.SelectorExpr:
				if !ofEngine(name) && runtimes[types.ExprString(n)] {
					names = types.ExprString(n)
				}
			case *ast.BasicLit:
				if n.Kind == token.STRING && !ofEngine(name) && spelt.MatchString(strings.ReplaceAll(n.Value, "llama.cpp", string(metrics.LlamaCpp))) {
					names = n.Value
				}
			}
			if names != "" {
				t.Errorf("%s names %s: give Dialect a field for it, and set that in the engine's file", set.Position(n.Pos()), names)
			}
			return true
		})
	}
}
