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
)

// TestEnginesStayInTheirFiles keeps every quirk with its engine: only dialect_NAME.go and the list in dialects.go may name a
// runtime, spell an engine's name in a string, or use what another engine's file declares.
func TestEnginesStayInTheirFiles(t *testing.T) {
	names, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	set, files := token.NewFileSet(), map[string]*ast.File{}
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		if files[name], err = parser.ParseFile(set, name, nil, 0); err != nil {
			t.Fatal(err)
		}
	}
	info := &types.Info{Uses: map[*ast.Ident]types.Object{}}
	local := types.Config{Error: func(error) {}} // imports stay unresolved: what the package itself declares is enough
	_, _ = local.Check("engine", set, slices.Collect(maps.Values(files)), info)

	own := func(name string) bool { return strings.HasPrefix(name, "dialect_") }
	var spellings []string
	runtimes := map[string]bool{} // constants of package metrics
	for _, d := range builtin {
		spellings = append(spellings, string(d.Runtime))
	}
	spelt := regexp.MustCompile(`(?i)(^|[^a-z])(` + strings.Join(spellings, "|") + `)([^a-z]|$)`)
	for name, file := range files {
		ast.Inspect(file, func(n ast.Node) bool {
			if kv, ok := n.(*ast.KeyValueExpr); ok && own(name) {
				if key, ok := kv.Key.(*ast.Ident); ok && key.Name == "Runtime" {
					if value, ok := kv.Value.(*ast.SelectorExpr); ok {
						runtimes[value.Sel.Name] = true
					}
				}
			}
			return true
		})
	}
	if len(runtimes) == 0 || len(info.Uses) == 0 {
		t.Fatal("the engines' files could not be read")
	}
	const remedy = "give Dialect a field for it, and set that in the engine's file"
	for name, file := range files {
		ast.Inspect(file, func(n ast.Node) bool {
			at := func(what string) { t.Errorf("%s: %s: %s", set.Position(n.Pos()), what, remedy) }
			switch n := n.(type) {
			case *ast.Ident:
				use := info.Uses[n]
				if use == nil || !use.Pos().IsValid() {
					break
				}
				if home := set.Position(use.Pos()).Filename; own(home) && home != name && name != "dialects.go" {
					at(n.Name + " belongs to " + home)
				}
			case *ast.SelectorExpr:
				if in, ok := n.X.(*ast.Ident); ok && in.Name == "metrics" && runtimes[n.Sel.Name] && !own(name) {
					at("metrics." + n.Sel.Name)
				}
			case *ast.BasicLit:
				if n.Kind == token.STRING && !own(name) && spelt.MatchString(strings.ReplaceAll(n.Value, "llama.cpp", "llamacpp")) {
					at(n.Value)
				}
			}
			return true
		})
	}
}
