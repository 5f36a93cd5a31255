package main

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/llm-node-exporter/llm-node-exporter/collectors/health"
	"github.com/llm-node-exporter/llm-node-exporter/metrics"
)

// eksFatal lists the XIDs for which Amazon's node monitoring agent sets AcceleratedHardwareReady to false. The source is WellKnownXidCodes
// in monitors/nvidia/dcgm/dcgm_policies.go of aws/eks-node-monitoring-agent, read in November 2026.
var eksFatal = []int{46, 48, 54, 62, 63, 64, 74, 79, 95, 109, 110, 119, 120, 136, 140, 142, 143, 151, 155, 156, 158}

// differences explains, by XID, why our verdict differs from Amazon's list or from NVIDIA's catalogue.
var differences = map[int]string{
	63:  "EKS replaces the node. NVIDIA ignores this XID: the row is out of use, and the reset that remaps it can wait",
	64:  "if it recurs after the reset, row_remap_failure has the verdict replace",
	94:  "NVIDIA restarts the application: the error is contained. row_remap_pending stays until the reset",
	109: "NVIDIA and EKS agree; k8s-device-plugin treats it as an error of the application",
	142: "EKS replaces the node. NVIDIA only says to contact NVIDIA, and a single encoder is affected",
	165: "the part is worn out: a reset does not help",
}

// healthPage returns the page that explains the verdict on a GPU.
func healthPage() ([]byte, error) {
	var b bytes.Buffer
	b.WriteString("# The verdict on a GPU\n\n" + generated + healthIntroduction)
	for i, name := range metrics.Verdicts {
		fmt.Fprintf(&b, "| `%s` | %d | %s |\n", name, i, []string{
			"use the GPU", "the GPU works; prefer another one, and service it when convenient",
			"start nothing new on the GPU; service it once it is empty",
			"work on the GPU fails or is at risk until the GPU or its node is reset", "a reset does not help: replace the board",
		}[i])
	}
	b.WriteString(healthHysteresis)
	b.WriteString(healthXIDs)
	fmt.Fprintf(&b, "A code that is not listed counts as `%s`.\n", metrics.UnlistedXID)
	return b.Bytes(), nil
}

// conditionTable lists the conditions for which a GPU or a node is not healthy, and when each begins and ends.
func conditionTable() ([]byte, error) {
	rows := [][]string{{"condition", "verdict", "of", "means", "alert", "counts after", "lifted", "elsewhere"}}
	for _, c := range health.Conditions {
		of, lifted := "GPU", "not seen for "+lasting(c.Quiet)
		if c.UntilReset {
			lifted += ", or a reset"
		}
		if c.Node {
			of = "node"
		}
		held := lasting(c.Hold)
		if c.WithEngine {
			held += ", or at once if an engine on it has stopped"
		}
		rows = append(rows, []string{c.Name, fmt.Sprint(c.Verdict), of, c.Meaning, cmp.Or(c.Alert, "none"), held, lifted, c.Elsewhere})
	}
	return table(rows)
}

// xidTable lists our verdict on each XID beside NVIDIA's and Amazon's reactions to it.
func xidTable() ([]byte, error) {
	rows := [][]string{{"XID", "verdict", "alert", "means", "NVIDIA", "EKS", "why ours differs"}}
	for _, x := range metrics.XIDs {
		eks := "event"
		if slices.Contains(eksFatal, x.Code) {
			eks = "fatal"
		}
		rows = append(rows, []string{
			strconv.Itoa(x.Code), x.Verdict.String(), cmp.Or(x.Answer(), "none"), x.Meaning, x.Action, eks,
			differences[x.Code],
		})
	}
	return table(rows)
}

// lasting formats a duration for people.
func lasting(d time.Duration) string {
	switch {
	case d == 0:
		return "at once"
	case d%time.Hour == 0:
		return fmt.Sprintf("%d h", d/time.Hour)
	case d%time.Minute == 0:
		return fmt.Sprintf("%d min", d/time.Minute)
	}
	return fmt.Sprintf("%d s", d/time.Second)
}

const healthIntroduction = `Every five seconds the exporter gives each GPU and the node a verdict, on which schedulers, controllers and people can act:

` + "```" + `
curl -s http://127.0.0.1:9844/verdict/gpus
` + "```" + `

For each GPU the answer has the verdict and its time, the conditions with their own verdicts, times, sources and remedies, and the engines and pods on
the GPU. ` + "`watching_since`" + ` is when the exporter began to watch; ` + "`boot_id`" + ` identifies the boot of the node. ` +
	"`llm_gpu_health`" + `,
` + "`llm_gpu_node_health`" + `, ` + "`llm_gpu_health_condition_timestamp_seconds`" + `, the node page, ` + "`exporter doctor`" +
	`, the alerts on GPUs and the dashboard of GPU nodes
report the same verdicts. Each condition names its alert.

| verdict | number | means |
|---|---|---|
`

const healthHysteresis = `
The verdict of a GPU is the worst of its conditions. The verdict of the node also counts those of its GPUs.

## Conditions

[conditions.csv](conditions.csv) lists each condition with its verdict, when it counts, when it is lifted, and what other tools do about it:

` + "```sh" + `
grep '^row_remap_pending,' docs/conditions.csv    # one condition
grep ',replace,' docs/conditions.csv              # where a reset does not help
` + "```" + `

Three alert reasons are not conditions, because they need hours of history: ` + "`recovers`, `wears` and `persistence_off`" + `.

A condition counts once it has lasted without a break for the time under "counts after". A missing value does not lift a condition,
so a GPU that fell off the bus keeps its conditions. The exporter detects a reset when the GPU's energy counter restarts.

"Elsewhere" names the checks of NVIDIA (DCGM's health watches and Health Validation), of Amazon's node monitoring agent (EKS) and of NVSentinel. Some
of these take a GPU out of service for heat, a slow rack or a single NVLink fault. Here all three are ` + "`degraded`" +
	`, because the GPU still serves and
objectives show whether users are affected.
`

const healthXIDs = `
## XIDs

An XID changes the verdict at once. A reset lifts the XID. If the driver requested a recovery, the XID also stops counting when the driver
no longer requests that recovery. Otherwise an XID counts for

* one hour if the driver can request a recovery (570 or newer) and did not;
* 24 hours if the driver is too old for that;
* six hours if the verdict is ` + "`degraded`" + `. An XID that the kernel log calls nonfatal is at most ` + "`degraded`" + `.

After a restart the exporter reads earlier XIDs from the kernel log. It does not remember how counters grew, which links were up, or that a fabric manager ran.

[xids.csv](xids.csv) has the action for each code in NVIDIA's catalogue, and what Amazon's agent does: it replaces the node ten minutes after a
` + "`fatal`" + ` code. Codes caused by the application, the configuration or a test, and codes that only add detail to another code, leave the verdict ` + "`healthy`" + `.

` + "```sh" + `
grep '^79,' docs/xids.csv
` + "```" + `

`
