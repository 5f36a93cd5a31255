// Package examples embeds the rules as they are generated with default flags, so that a program can tell whether a
// Prometheus evaluates the same.
package examples

import _ "embed"

// Rules holds the rule file.
//
//go:embed prometheus/rules.yaml
var Rules []byte
