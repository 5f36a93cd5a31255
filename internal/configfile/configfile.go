// Package configfile reads YAML configuration files strictly. It reports the line of each mistake, and never panics.
// Libraries may quote values in errors. Errors of this package never repeat such a value, because it may be a secret.
package configfile

import (
	"encoding"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// MaxBytes limits the size of a file.
const MaxBytes = 4 << 20

// maxNodes limits the number of nodes in a file after aliases are resolved.
const maxNodes = 1_000_000

// An Error names the place of a mistake by a path such as targets[0].url.
type Error struct {
	Path string
	Err  error
}

func (e *Error) Error() string {
	if e.Path == "" {
		return e.Err.Error()
	}
	return e.Path + ": " + e.Err.Error()
}

// Unwrap returns the error without the path.
func (e *Error) Unwrap() error { return e.Err }

// Errorf returns an Error.
func Errorf(path, format string, args ...any) error {
	return &Error{path, fmt.Errorf(format, args...)}
}

// File is the parsed content of a file.
type File struct {
	name string
	root *yaml.Node // nil for an empty file
}

// Read reads a file. Errors name the file and the line.
func Read(name string) (*File, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	source, err := io.ReadAll(io.LimitReader(f, MaxBytes+1))
	switch {
	case err != nil:
		return nil, err
	case len(source) > MaxBytes:
		return nil, fmt.Errorf("%s is larger than %d MiB: is it the right file?", name, MaxBytes>>20)
	}
	return Parse(name, source)
}

// inLine matches a parser error that may begin with a line number.
var inLine = regexp.MustCompile(`^yaml: (?:line (\d+): )?(.*)`)

// Parse parses a file. The name appears in errors.
func Parse(name string, source []byte) (*File, error) {
	var document yaml.Node
	if err := yaml.Unmarshal(source, &document); err != nil {
		line, text := "1", err.Error()
		if m := inLine.FindStringSubmatch(text); m != nil {
			text = m[2]
			if m[1] != "" {
				line = m[1]
			}
		}
		return nil, fmt.Errorf("%s:%s: not YAML: %s", name, line, text)
	}
	f := &File{name: name}
	if len(document.Content) > 0 {
		f.root = document.Content[0]
	}
	w := walk{}
	return f, f.At(w.check("", f.root))
}

// Decode writes the file's values into a struct, with types and yaml tags as in package yaml. It refuses keys for which
// the struct has no field.
func (f *File) Decode(into any) error {
	if f.root == nil {
		return nil
	}
	return f.At(fill("", f.root, reflect.ValueOf(into).Elem()))
}

// At adds file and line to an Error, or to several joined Errors. Other errors stay unchanged.
func (f *File) At(err error) error {
	if several, ok := err.(interface{ Unwrap() []error }); ok {
		all := slices.Clone(several.Unwrap())
		for i, one := range all {
			all[i] = f.At(one)
		}
		return errors.Join(all...)
	}
	var at *Error
	if f == nil || f.root == nil || !errors.As(err, &at) {
		return err
	}
	return fmt.Errorf("%s:%d: %w", f.name, line(f.root, at.Path), err)
}

// step matches one step of a path.
var step = regexp.MustCompile(`^\.?([^.\[\]]+)|^\[(\d+)\]`)

// line returns the line of a path. If the file lacks the path, it returns the line of the closest parent.
func line(n *yaml.Node, path string) int {
	at := n.Line
	for {
		m := step.FindStringSubmatch(path)
		if m == nil {
			return at
		}
		path = path[len(m[0]):]
		n = resolve(n)
		i, _ := strconv.Atoi(m[2])
		switch {
		case m[1] == "" && n.Kind == yaml.SequenceNode && i < len(n.Content):
			n = n.Content[i]
			at = n.Line
			continue
		case m[1] != "" && n.Kind == yaml.MappingNode:
			fields := fieldsOf(n)
			if found := slices.IndexFunc(fields, func(f field) bool { return f.key.Value == m[1] }); found >= 0 {
				n, at = fields[found].value, fields[found].key.Line
				continue
			}
		}
		return at
	}
}

// walk checks a document for content that would take a decoder too long.
type walk struct {
	nodes  int
	inside []*yaml.Node
}

// check refuses duplicate keys, and aliases that contain themselves or make the file huge.
func (w *walk) check(path string, n *yaml.Node) error {
	if n == nil {
		return nil
	}
	if w.nodes++; w.nodes > maxNodes {
		return Errorf(path, "aliases make the file too large: use fewer of them")
	}
	switch n.Kind {
	case yaml.AliasNode:
		if slices.Contains(w.inside, n.Alias) {
			return Errorf(path, "*%s contains itself", n.Value)
		}
		return w.check(path, n.Alias)
	case yaml.SequenceNode, yaml.MappingNode:
		w.inside = append(w.inside, n)
		defer func() { w.inside = w.inside[:len(w.inside)-1] }()
	case yaml.DocumentNode, yaml.ScalarNode: // these nodes cannot contain themselves
	}
	keys := map[string]bool{}
	for i, child := range n.Content {
		at := fmt.Sprintf("%s[%d]", path, i)
		if n.Kind == yaml.MappingNode {
			key := n.Content[i&^1]
			at = join(path, key.Value)
			switch {
			case i%2 == 1:
			case key.Kind != yaml.ScalarNode:
				return Errorf(path, "the name of a field must be text")
			case keys[key.Value]:
				return Errorf(at, "is given twice")
			}
			keys[key.Value] = true
			if i%2 == 1 && key.Tag == "!!merge" && !slices.ContainsFunc(merged(child),
				func(n *yaml.Node) bool { return n.Kind == yaml.MappingNode }) {
				return Errorf(at, "must name fields")
			}
		}
		if err := w.check(at, child); err != nil {
			return err
		}
	}
	return nil
}

func join(path, name string) string { return strings.TrimPrefix(path+"."+name, ".") }

// resolve returns the node that an alias refers to.
func resolve(n *yaml.Node) *yaml.Node {
	for n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	return n
}

// merged returns the nodes that << refers to.
func merged(n *yaml.Node) []*yaml.Node {
	if n = resolve(n); n.Kind != yaml.SequenceNode {
		return []*yaml.Node{n}
	}
	var all []*yaml.Node
	for _, one := range n.Content {
		all = append(all, resolve(one))
	}
	return all
}

type field struct{ key, value *yaml.Node }

// fieldsOf returns the fields of a mapping, followed by the merged fields that the mapping lacks. inside lists the
// mappings that merge this mapping. A path may be looked up before check has refused mappings that contain themselves.
func fieldsOf(n *yaml.Node, inside ...*yaml.Node) []field {
	var own, others []field
	for i := 0; i+1 < len(n.Content); i += 2 {
		if key := n.Content[i]; key.Tag != "!!merge" {
			own = append(own, field{key, n.Content[i+1]})
			continue
		}
		for _, other := range merged(n.Content[i+1]) {
			if inside := append(inside, n); !slices.Contains(inside, other) {
				others = append(others, fieldsOf(other, inside...)...)
			}
		}
	}
	for _, other := range others {
		if !slices.ContainsFunc(own, func(f field) bool { return f.key.Value == other.key.Value }) {
			own = append(own, other)
		}
	}
	return own
}

// fill decodes a node into a Go value.
func fill(path string, n *yaml.Node, v reflect.Value) error {
	n = resolve(n)
	if n.Kind == yaml.ScalarNode && n.ShortTag() == "!!null" {
		return nil // null means absent
	}
	if v.Kind() == reflect.Pointer {
		v.Set(reflect.New(v.Type().Elem()))
		return fill(path, n, v.Elem())
	}
	switch u := v.Addr().Interface().(type) {
	case interface{ UnmarshalYAML(func(any) error) error }:
		return foreign(path, func() error {
			return u.UnmarshalYAML(func(into any) error { return fill(path, n, reflect.ValueOf(into).Elem()) })
		})
	case encoding.TextUnmarshaler:
		if n.Kind != yaml.ScalarNode {
			return Errorf(path, "must be text")
		}
		return foreign(path, func() error { return u.UnmarshalText([]byte(n.Value)) })
	}
	switch v.Kind() {
	case reflect.Struct:
		return fillStruct(path, n, v)
	case reflect.Map:
		if n.Kind != yaml.MappingNode {
			return Errorf(path, "must be fields, as in {name: value}")
		}
		v.Set(reflect.MakeMap(v.Type()))
		for _, f := range fieldsOf(n) {
			value := reflect.New(v.Type().Elem()).Elem()
			if err := fill(join(path, f.key.Value), f.value, value); err != nil {
				return err
			}
			v.SetMapIndex(reflect.ValueOf(f.key.Value).Convert(v.Type().Key()), value)
		}
		return nil
	case reflect.Slice:
		if n.Kind != yaml.SequenceNode {
			return Errorf(path, "must be a list, as in [one, two]")
		}
		v.Set(reflect.MakeSlice(v.Type(), len(n.Content), len(n.Content)))
		for i, one := range n.Content {
			if err := fill(fmt.Sprintf("%s[%d]", path, i), one, v.Index(i)); err != nil {
				return err
			}
		}
		return nil
	}
	if err := foreign(path, func() error { return n.Decode(v.Addr().Interface()) }); err != nil {
		return Errorf(path, "must be %s", kinds[v.Kind()])
	}
	return nil
}

// kinds describes, for each kind of Go value, the required form in words.
var kinds = map[reflect.Kind]string{
	reflect.String: "text", reflect.Bool: "true or false", reflect.Int: "a whole number",
	reflect.Float64: "a number", reflect.Interface: "a value of JSON",
}

// fillStruct writes a mapping into the fields of a struct.
func fillStruct(path string, n *yaml.Node, v reflect.Value) error {
	if n.Kind != yaml.MappingNode {
		return Errorf(path, "must be fields, as in {name: value}")
	}
	for _, f := range fieldsOf(n) {
		at := join(path, f.key.Value)
		to := named(v, f.key.Value)
		if !to.IsValid() {
			return Errorf(at, "unknown field %q", f.key.Value)
		}
		if to.Kind() != reflect.Map || !inlined(v, to) {
			if err := fill(at, f.value, to); err != nil {
				return err
			}
			continue
		}
		value := reflect.New(to.Type().Elem()).Elem()
		if err := fill(at, f.value, value); err != nil {
			return err
		}
		if to.IsNil() {
			to.Set(reflect.MakeMap(to.Type()))
		}
		to.SetMapIndex(reflect.ValueOf(f.key.Value), value)
	}
	return nil
}

// named returns the field of a struct for a name in YAML. This may be a field of the struct, a field of an inlined
// struct, or the map for all other names. If there is no such field, named returns the zero Value.
func named(v reflect.Value, name string) (found reflect.Value) {
	for i := range v.NumField() {
		switch own, inline := Name(v.Type().Field(i)); {
		case own == name:
			return v.Field(i)
		case inline && v.Field(i).Kind() == reflect.Struct:
			if f := named(v.Field(i), name); f.IsValid() {
				return f
			}
		case inline:
			found = v.Field(i)
		}
	}
	return found
}

// inlined reports whether a field is the inlined one, which contains all names that no other field has.
func inlined(v, field reflect.Value) bool {
	for i := range v.NumField() {
		if _, inline := Name(v.Type().Field(i)); inline && v.Field(i).Addr().Interface() == field.Addr().Interface() {
			return true
		}
	}
	return false
}

// Name returns the name that a struct field has in YAML. The name is empty for a field that is inlined or that YAML
// cannot set. inline means that the fields of the field's value are inlined.
func Name(f reflect.StructField) (name string, inline bool) {
	name, options, _ := strings.Cut(f.Tag.Get("yaml"), ",")
	switch {
	case !f.IsExported() || name == "-":
		return "", false
	case strings.Contains(options, "inline"):
		return "", true
	case name == "":
		return strings.ToLower(f.Name), false
	}
	return name, false
}

// foreign calls functions of other packages that read values. It turns their panics into errors, and adds the place to
// their errors.
func foreign(path string, read func() error) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = Errorf(path, "cannot be read")
		}
		var placed *Error
		var address *url.Error
		switch {
		case err == nil || errors.As(err, &placed):
		case errors.As(err, &address): // the error quotes the address, which may contain a password
			err = Errorf(path, "not a URL")
		default:
			err = &Error{path, err}
		}
	}()
	return read()
}
