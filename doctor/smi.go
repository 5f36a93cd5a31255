package doctor

import (
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// smiLog is the output of nvidia-smi -q -x. It maps paths of elements to values, for the node and for each GPU.
type smiLog struct {
	node map[string]string
	gpus []smiGPU
}

// smiGPU is one GPU. A path consists of the names of elements, joined by slashes. The last element has a text.
type smiGPU struct {
	values map[string]string
	mig    []map[string]string // its MIG devices
	order  []string
	procs  int // compute processes
}

// element is any element of the document.
type element struct {
	XMLName  xml.Name
	Text     string    `xml:",chardata"`
	Children []element `xml:",any"`
}

// smiLimit limits the size of a document. A document about eight GPUs has 2 MiB.
const smiLimit = 64 << 20

// smiLists are elements with one entry per clock, process or device. They are skipped, because they have many values
// without names of their own.
var smiLists = map[string]bool{
	"supported_clocks": true, "accounted_processes": true, "processes": true, "mig_devices": true,
	"retired_pagelist": true,
}

// readSMI reads a document of nvidia-smi -q -x.
func readSMI(from io.Reader) (smiLog, error) {
	var root element
	if err := xml.NewDecoder(io.LimitReader(from, smiLimit)).Decode(&root); err != nil {
		return smiLog{}, fmt.Errorf("this is not what nvidia-smi -q -x prints: %w", err)
	}
	if root.XMLName.Local != "nvidia_smi_log" {
		return smiLog{}, fmt.Errorf("this is not what nvidia-smi -q -x prints: it begins with <%s>", root.XMLName.Local)
	}
	log := smiLog{node: map[string]string{}}
	for _, e := range root.Children {
		if e.XMLName.Local != "gpu" {
			log.node[e.XMLName.Local] = strings.TrimSpace(e.Text)
			continue
		}
		g := smiGPU{values: map[string]string{}}
		for _, child := range e.Children {
			g.take(child)
		}
		log.gpus = append(log.gpus, g)
	}
	if len(log.gpus) == 0 {
		return log, errors.New("nvidia-smi lists no GPU")
	}
	return log, nil
}

func (g *smiGPU) take(e element) {
	switch e.XMLName.Local {
	case "processes":
		for _, p := range e.Children {
			for _, v := range p.Children {
				if v.XMLName.Local == "type" && strings.Contains(v.Text, "C") {
					g.procs++
				}
			}
		}
	case "mig_devices":
		for _, d := range e.Children {
			values := map[string]string{}
			d.walk("", func(path, text string) { values[path] = text })
			g.mig = append(g.mig, values)
		}
	}
	e.walk(e.XMLName.Local, func(path, text string) {
		if _, twice := g.values[path]; !twice {
			g.order = append(g.order, path)
		}
		g.values[path] = text
	})
}

// walk visits each element that contains no other elements.
func (e element) walk(path string, visit func(path, text string)) {
	if path != "" && smiLists[e.XMLName.Local] {
		return
	}
	if len(e.Children) == 0 {
		visit(path, strings.TrimSpace(e.Text))
		return
	}
	for _, c := range e.Children {
		c.walk(strings.TrimPrefix(path+"/"+c.XMLName.Local, "/"), visit)
	}
}

// smiSilent reports whether a text of nvidia-smi means that there is no value, such as N/A.
func smiSilent(text string) bool {
	switch strings.Trim(text, "[]") {
	case "", "N/A", "00000000-0000-0000-0000-000000000000", "Not Supported", "Unknown Error", "Unknown", "Insufficient Permissions",
		"GPU requires reset", "ERR!",
		"Requested functionality has been deprecated", "Requested functionality is not supported on this device":
		return true
	}
	return false
}

// smiUnits maps a unit of nvidia-smi to base units. A number without a unit is a count.
var smiUnits = map[string]float64{
	"": 1, "MiB": 1 << 20, "MHz": 1e6, "W": 1, "C": 1, "%": 0.01, "us": 1e-6, "KB/s": 1e3, "x": 1,
	"bank(s)": 1, "mV": 1e-3,
}

// smiWords maps words for states to the exporter's numbers.
var smiWords = map[string]float64{
	"Yes": 1, "No": 0, "Enabled": 1, "Disabled": 0, "enabled": 1, "disabled": 0, "Active": 1, "Not Active": 0, "Pending": 1,
	"True": 1, "False": 0, "Healthy": 0, "Unhealthy": 1, "Limited Capacity": 1, "Full": 0, "Degraded": 1, "None": 0,
	"GPU Reset": 1, "Reset GPU": 1, "Reset": 1, "Node Reboot": 2, "Reboot": 2, "Drain P2P": 3, "Drain and Reset": 4,
}

// smiNumber parses a value with its unit. If the value is a word such as "Enabled", the unit is empty.
func smiNumber(text string) (value float64, unit string, ok bool) {
	if v, known := smiWords[text]; known {
		return v, "", true
	}
	text = strings.TrimPrefix(text, "P") // of a performance state
	end := strings.LastIndexAny(text, "0123456789") + 1
	v, err := strconv.ParseFloat(text[:end], 64)
	unit = strings.TrimSpace(text[end:])
	scale, known := smiUnits[unit]
	return v * scale, unit, err == nil && known
}
