// Package examples embeds the rules that are generated with default flags, so that a program can check whether a
// Prometheus evaluates the same rules.
package examples

import _ "embed"

// Rules holds the rule file.
//
//go:embed prometheus/rules.yaml
var Rules []byte
