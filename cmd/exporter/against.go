package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"time"

	"github.com/llm-node-exporter/llm-node-exporter/doctor"
)

// nvidiaSMI is the value of --against that makes the command run nvidia-smi. askSMI is the time limit for nvidia-smi.
// It is long, because without persistence mode, nvidia-smi first initialises each GPU.
const (
	nvidiaSMI = "nvidia-smi"
	askSMI    = 2 * time.Minute
)

// compare compares the exporter's numbers with nvidia-smi's, and writes the differences.
func (o doctorOptions) compare(ctx context.Context, out, progress io.Writer) (status int, err error) {
	const failed = 3
	document, readings, sameTime, err := o.bothSides(ctx, progress)
	if err != nil {
		return failed, err
	}
	compared, err := doctor.AgainstSMI(document, sameTime, readings...)
	if err != nil {
		return failed, fmt.Errorf("--against=%s: %w", o.against, err)
	}
	if o.bundle != "" {
		packed, err := doctor.Bundle(document, readings...)
		if err == nil {
			err = os.WriteFile(o.bundle, packed, 0o600)
		}
		if err != nil {
			return failed, fmt.Errorf("--bundle: %w", err)
		}
		fmt.Fprintf(progress, "Wrote %s, without names of hosts, pods and processes, serial numbers and UUIDs.\n", o.bundle)
	}
	if o.output == "json" {
		encoder := json.NewEncoder(out)
		encoder.SetIndent("", "  ")
		err = encoder.Encode(struct {
			Status int `json:"status"`
			doctor.Comparison
		}{compared.Status(), compared})
	} else {
		_, err = io.WriteString(out, compared.Text())
	}
	return compared.Status(), err
}

// bothSides returns nvidia-smi's output and readings of the exporter. If the command runs nvidia-smi itself, bothSides
// reads the exporter before and after that.
func (o doctorOptions) bothSides(ctx context.Context, progress io.Writer) (document []byte, readings []*doctor.Reading, sameTime bool,
	err error,
) {
	read := func() error {
		r, findings, err := o.readExporter(ctx, progress)
		switch {
		case err != nil:
			return err
		case r == nil:
			return fmt.Errorf("the exporter cannot be read: %s: %s", findings[0].Problem, findings[0].Remedy)
		}
		readings = append(readings, r)
		return nil
	}
	if o.against != nvidiaSMI {
		if document, err = os.ReadFile(o.against); err != nil {
			return nil, nil, false, fmt.Errorf("--against: %w", err)
		}
		packed, theirs, ok, err := doctor.OpenBundle(document)
		if ok || err != nil {
			return packed, theirs, true, err
		}
		return document, readings, false, errors.Join(read())
	}
	if err := read(); err != nil {
		return nil, nil, false, err
	}
	if document, err = runSMI(ctx); err != nil {
		return nil, nil, false, err
	}
	if readings[0].Exporter != thisNode { // reading the node itself takes seconds, so one reading is enough
		wait := readings[0].UntilReadAgain()
		fmt.Fprintf(progress, "Reading the exporter again in %s, when the exporter has read the GPUs anew.\n", wait)
		select {
		case <-ctx.Done():
			return nil, nil, false, ctx.Err()
		case <-time.After(wait):
		}
		err = read()
	}
	return document, readings, true, err
}

// runSMI runs nvidia-smi -q -x.
func runSMI(ctx context.Context) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, askSMI)
	defer cancel()
	run := exec.CommandContext(ctx, nvidiaSMI, "-q", "-x")
	run.WaitDelay = time.Second
	document, err := run.Output()
	if err == nil {
		return document, nil
	}
	if failed, ok := errors.AsType[*exec.ExitError](err); ok {
		return nil, fmt.Errorf("nvidia-smi -q -x: %w: %s", err, bytes.TrimSpace(append(failed.Stderr, document...)))
	}
	return nil, fmt.Errorf("nvidia-smi -q -x: %w: run nvidia-smi where it is installed, and pass its output as --against=FILE", err)
}
