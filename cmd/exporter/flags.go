package main

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/alecthomas/kingpin/v2"

	"github.com/llm-node-exporter/llm-node-exporter/runbooks"
)

// named adds the name of the flag to a parsing error, because kingpin's errors about values do not name the flag. To
// find the flag, named parses each flag separately. This changes the flags' values, but the caller exits anyway.
func named(app *kingpin.Application, args []string, err error) error {
	for i, arg := range args {
		flag, _, whole := strings.Cut(arg, "=")
		if !strings.HasPrefix(flag, "--") || strings.Contains(err.Error(), flag) {
			continue
		}
		end := i + 1
		if !whole && end < len(args) {
			end++
		}
		if _, alone := app.Parse(args[i:end]); alone != nil && alone.Error() == err.Error() {
			return fmt.Errorf("%s: %w", flag, err)
		}
	}
	return err
}

var pathOfMetrics = regexp.MustCompile(`^(/[\w.~-]+)+/?$`)

// check refuses invalid values of flags.
func (o options) check() error {
	taken := []string{"/engines", "/verdict", "/verdict/gpus", "/-/healthy", "/-/ready", "/runbooks/"}
	for _, f := range []struct {
		name  string
		wrong bool
		why   string
	}{
		{"web.telemetry-path", !pathOfMetrics.MatchString(o.server.metricsPath), "write a path such as /metrics"},
		{"web.telemetry-path", slices.Contains(taken, o.server.metricsPath), "the exporter serves something else at this path"},
		{"compat.dcgm", o.server.dcgm && !o.gpus.enabled, "other flags stop this exporter from reading GPUs: omit this flag"},
		{"web.max-requests", o.server.maxRequests < 0, "must not be negative"},
		{"gpu.interval", o.gpus.enabled && o.gpus.Interval <= 0, "must be more than 0"},
		{"gpu.deadline", o.gpus.enabled && o.gpus.Deadline <= 0, "must be more than 0"},
		{"gpu.restart-after", o.gpus.RestartAfter < 0, "must not be negative"},
	} {
		if f.wrong {
			return errors.New("--" + f.name + ": " + f.why)
		}
	}
	if err := runbooks.Opener(o.server.queries).Check(); err != nil {
		return fmt.Errorf("--web.runbook-query-url: %w", err)
	}
	return o.act.check(o.config.role)
}
