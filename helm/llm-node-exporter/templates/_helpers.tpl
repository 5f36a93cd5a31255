{{- define "lne.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 63 | trimSuffix "-" -}}
{{- else -}}
{{- $name := default .Chart.Name .Values.nameOverride -}}
{{- if contains $name .Release.Name -}}
{{- .Release.Name | trunc 63 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 63 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- /* A name with a suffix, as in (list . "config"). A name too long for 63 characters ends in a digest, so that
two names that begin alike stay different. */ -}}
{{- define "lne.suffixed" -}}
{{- $base := include "lne.fullname" (index . 0) -}}
{{- $suffix := index . 1 -}}
{{- if gt (add (len $base) (len $suffix)) 62 -}}
{{- $base = printf "%s-%s" ($base | trunc (int (sub 53 (len $suffix))) | trimSuffix "-") (sha256sum $base | trunc 8) -}}
{{- end -}}
{{- printf "%s-%s" $base $suffix -}}
{{- end -}}

{{- /* A name for cluster-wide objects: no other name has a colon, so it keeps the releases of all namespaces apart. */ -}}
{{- define "lne.clusterName" -}}
{{ include "lne.namespace" . }}:{{ include "lne.fullname" . }}
{{- end -}}

{{- define "lne.namespace" -}}
{{ default .Release.Namespace .Values.namespaceOverride }}
{{- end -}}

{{- /* A generated text with the namespace label and the runbook address of the values, as in (list . $text). In the
files, namespace is a label where a template reads it, and between the separators of labels in PromQL, YAML and legends. */ -}}
{{- define "lne.generated" -}}
{{- $ := index . 0 -}}
{{- $url := include "lne.runbookURL" $ -}}
{{- $text := regexReplaceAll "http://localhost:9844/runbooks/(\\w+|\\$\\{__[\\w.]+\\}|\\{\\{\\$page\\}\\})(\\?[^\\s\"']+)?" (index . 1) ($url | replace "{alert}" "${1}" | replace "{labels}" "${2}") -}}
{{- $text = replace "http://localhost:9844/runbooks/" (splitList "{alert}" $url | first) $text -}}
{{- $text = replace "-n NAMESPACE port-forward ds/llm-node-exporter " (printf "-n %s port-forward ds/%s " (include "lne.namespace" $) (include "lne.fullname" $)) $text -}}
{{- if ne $.Values.namespaceLabel "namespace" -}}
{{- $text = regexReplaceAll "([$]labels|[.]Labels)[.]namespace\\b" $text (printf "${1}.%s" $.Values.namespaceLabel) -}}
{{- $text = replace "\"namespace\":" (printf "\"%s\":" $.Values.namespaceLabel) $text -}}
{{- $text = regexReplaceAll "([ ,({])namespace([,)=!}\n])" $text (printf "${1}%s${2}" $.Values.namespaceLabel) -}}
{{- end -}}
{{- $text -}}
{{- end -}}

{{- define "lne.runbookURL" -}}
{{- if .Values.prometheusRule.runbookURL -}}
{{ .Values.prometheusRule.runbookURL }}
{{- else if .Values.ingress.host -}}
{{ .Values.ingress.scheme }}://{{ .Values.ingress.host }}/runbooks/{alert}{labels}
{{- else if .Values.service.enabled -}}
{{ .Values.webConfig.scheme }}://{{ include "lne.fullname" . }}.{{ include "lne.namespace" . }}.svc:{{ .Values.port }}/runbooks/{alert}{labels}
{{- else -}}
{{ .Values.webConfig.scheme }}://localhost:{{ .Values.port }}/runbooks/{alert}{labels}
{{- end -}}
{{- end -}}

{{- define "lne.selector" -}}
app.kubernetes.io/name: {{ default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- /* Whether this is the cluster's exporter and acts on sick GPUs, or would. */ -}}
{{- define "lne.acts" -}}
{{- if and .Cluster (ne .Values.act.gpus "off") }}true{{ end }}
{{- end -}}

{{- define "lne.labels" -}}
{{ include "lne.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "lne.serviceAccount" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "lne.fullname" .) .Values.serviceAccount.name -}}
{{- else -}}
{{- default "default" .Values.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{- define "lne.image" -}}
{{- with default .Values.image.registry .Values.global.imageRegistry }}{{ . }}/{{ end -}}
{{- if .Values.image.digest -}}
{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ .Values.image.repository }}:{{ default .Chart.AppVersion .Values.image.tag }}
{{- end -}}
{{- end -}}

{{- define "lne.pullSecrets" -}}
{{- with concat .Values.imagePullSecrets (default list .Values.global.imagePullSecrets) }}
imagePullSecrets: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{- define "lne.secretMounts" -}}
{{- range .Values.secrets }}
- {name: {{ printf "secret-%s" . }}, mountPath: {{ printf "/etc/llm-node-exporter/secrets/%s" . }}, readOnly: true}
{{- end }}
{{- end -}}

{{- define "lne.secretVolumes" -}}
{{- range .Values.secrets }}
- name: {{ printf "secret-%s" . }}
  secret: {secretName: {{ . }}, defaultMode: 0o444}
{{- end }}
{{- end -}}

{{- /* Where GPUs are read: the way to NVML, or another exporter's page. */ -}}
{{- define "lne.driver" -}}
{{- ternary "page" .Values.gpu.driver (ne .Values.gpu.source "") -}}
{{- end -}}

{{- /* What the enabled features need: privileged, root, capabilities, and the folders of the host. The device cgroup
lets nobody else open /dev/kmsg, or device nodes that no runtime has put there. */ -}}
{{- define "lne.needs" -}}
{{- $driver := include "lne.driver" . -}}
{{- $podResources := and (ne $driver "none") .Values.ownership.podResources -}}
podResources: {{ $podResources }}
privileged: {{ or .Values.gpu.kmsg (eq $driver "host") }}
root: {{ or $podResources .Values.ownership.processes .Values.gpu.kmsg (eq $driver "host") }}
hostPath: {{ or $podResources .Values.ownership.processes .Values.gpu.kmsg (has $driver (list "host" "volumeMounts")) }}
capabilities: {{ ternary (list "SYS_PTRACE" "DAC_READ_SEARCH") list .Values.ownership.processes | toJson }}
{{- end -}}

{{- define "lne.securityContext" -}}
{{- $needs := include "lne.needs" . | fromYaml -}}
readOnlyRootFilesystem: true
{{- if $needs.privileged }}
privileged: true
{{- else }}
allowPrivilegeEscalation: false
capabilities:
  drop: [ALL]
  {{- with $needs.capabilities }}
  add: {{ toJson . }}
  {{- end }}
{{- end }}
{{- if $needs.root }}
runAsUser: 0
{{- else }}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
{{- end }}
{{- end -}}

{{- /* Nine tenths of the memory limit in bytes, beyond which Go collects garbage more often; empty without a limit. */ -}}
{{- define "lne.softLimit" -}}
{{- $limit := dig "limits" "memory" "" .Values.resources -}}
{{- $limit = ternary (printf "%.0f" $limit) (toString $limit) (kindIs "float64" $limit) -}}
{{- $number := regexFind "^[0-9.]+" $limit -}}
{{- with get (dict "" 1 "k" 1e3 "M" 1e6 "G" 1e9 "Ki" 1024 "Mi" 1048576 "Gi" 1073741824) (trimPrefix $number $limit) -}}
{{- if $number }}{{ mulf (float64 $number) . 0.9 | int64 }}{{ end -}}
{{- end -}}
{{- end -}}

{{- /* A probe of a path with its settings, as in (list . "/-/ready" .Values.readinessProbe). */ -}}
{{- define "lne.probe" -}}
{{- $v := (index . 0).Values -}}
{{- $ask := dict "httpGet" (dict "path" (index . 1) "port" "metrics" "scheme" (upper $v.webConfig.scheme)) -}}
{{- if eq $v.probes "tcp" }}{{ $ask = dict "tcpSocket" (dict "port" "metrics") }}{{ end -}}
{{- toYaml (merge $ask (index . 2)) -}}
{{- end -}}

{{- /* A named template for the nodes' exporters and, with cluster.enabled, once more for the cluster's, as in
(list . "lne.service"). */ -}}
{{- define "lne.each" -}}
{{- include (index . 1) (index . 0) }}
{{- if (index . 0).Values.cluster.enabled }}
---
{{ include "lne.asCluster" . }}
{{- end }}
{{- end -}}

{{- /* The same for the cluster's exporter alone: with other names and labels, the values under cluster in place of
those of the same name, and nothing of a node. */ -}}
{{- define "lne.asCluster" -}}
{{- $ := index . 0 -}}
{{- $values := omit $.Values "cluster" -}}
{{- $own := dict
  "fullnameOverride" (include "lne.suffixed" (list $ "cluster"))
  "nameOverride" (printf "%s-cluster" (default $.Chart.Name $.Values.nameOverride | trunc 55 | trimSuffix "-"))
  "serviceAccount" (dict "create" $.Values.serviceAccount.create)
  "discovery" (dict "enabled" false)
  "ownership" (dict "podResources" false "processes" false)
  "gpu" (dict "driver" "none" "source" "" "kmsg" false)
  "hostNetwork" false
  "podSecurityContext" dict
  "securityContext" dict
  "extraVolumes" list
  "extraVolumeMounts" list
  "initContainers" list
  "sidecars" list -}}
{{- range $name, $value := merge $own $.Values.cluster }}{{ $_ := set $values $name $value }}{{ end -}}
{{- include (index . 1) (dict "Values" $values "Release" $.Release "Chart" $.Chart "Cluster" true "Nodes" (include "lne.selector" $)) -}}
{{- end -}}

{{- /* Queries that read only classic histograms, where the argument's read native ones first: VictoriaMetrics has none, and no such
functions. A choice between the two stands in parentheses. */ -}}
{{- define "lne.classicHistograms" -}}
{{- $call := "\\w+\\((?:[^()]|\\([^()]*\\))*\\)" -}}
{{- $text := regexReplaceAll (printf "\\(\\s*%s\\s+or\\s+\\(\\s*(%s)\\s+unless\\s+ignoring\\s+\\(le\\)\\s+%s\\s*\\)\\s*\\)" $call $call $call) . "${1}" -}}
{{- regexReplaceAll (printf "\\(\\s*histogram_(?:count|sum)\\(\\s*[\\w:]+(?:\\{[^}]*\\}|\\([^()]*\\))?\\s*\\)\\s+or\\s+(%s|[\\w:]+\\{[^}]*\\})\\s*\\)" $call) $text "${1}" -}}
{{- end -}}
