{{- /* The pod of the DaemonSet and that of the Deployment. */ -}}
{{- define "lne.pod" -}}
{{- $needs := include "lne.needs" . | fromYaml -}}
{{- $driver := include "lne.driver" . -}}
metadata:
  labels:
    {{- include "lne.labels" . | nindent 4 }}
    {{- with .Values.podLabels }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  annotations:
    checksum/config: {{ toYaml .Values.config | sha256sum }}
    {{- if eq $driver "cdi" }}
    nvidia.cdi.k8s.io/container.exporter: {{ .Values.gpu.cdiDevice }}
    {{- end }}
    {{- with .Values.podAnnotations }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
spec:
  serviceAccountName: {{ include "lne.serviceAccount" . }}
  automountServiceAccountToken: {{ or .Values.discovery.enabled (eq (include "lne.acts" .) "true") }}
  {{- include "lne.pullSecrets" . | nindent 2 }}
  {{- if and (eq $driver "runtimeClass") .Values.gpu.runtimeClassName }}
  runtimeClassName: {{ .Values.gpu.runtimeClassName }}
  {{- end }}
  {{- if .Values.hostNetwork }}
  hostNetwork: true
  dnsPolicy: ClusterFirstWithHostNet
  {{- end }}
  {{- if .Values.ownership.processes }}
  hostPID: true
  {{- end }}
  {{- with .Values.priorityClassName }}
  priorityClassName: {{ . }}
  {{- end }}
  {{- with .Values.nodeSelector }}
  nodeSelector: {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- if kindIs "map" .Values.affinity }}
  affinity: {{- toYaml .Values.affinity | nindent 4 }}
  {{- else }}
  affinity:
    nodeAffinity:
      requiredDuringSchedulingIgnoredDuringExecution:
        nodeSelectorTerms:
          - matchExpressions: [{key: nvidia.com/gpu.present, operator: In, values: ["true"]}]
          - matchExpressions: [{key: feature.node.kubernetes.io/pci-10de.present, operator: In, values: ["true"]}]
          - matchExpressions: [{key: cloud.google.com/gke-accelerator, operator: Exists}]
  {{- end }}
  {{- with .Values.tolerations }}
  tolerations: {{- toYaml . | nindent 4 }}
  {{- end }}
  terminationGracePeriodSeconds: {{ .Values.terminationGracePeriodSeconds }}
  securityContext: {{- toYaml (merge (deepCopy .Values.podSecurityContext) (dict "seccompProfile" (dict "type" "RuntimeDefault"))) | nindent 4 }}
  {{- with .Values.initContainers }}
  initContainers: {{- toYaml . | nindent 4 }}
  {{- end }}
  containers:
    - name: exporter
      image: {{ include "lne.image" . | quote }}
      imagePullPolicy: {{ .Values.image.pullPolicy }}
      args:
        - --config.file=/etc/llm-node-exporter/config/exporter.yml
        - --web.listen-address=:{{ .Values.port }}
        {{- if .Values.webConfig.existingSecret }}
        - --web.config.file=/etc/llm-node-exporter/web/web.yml
        {{- end }}
        {{- with .Values.prometheusRule.queryURL }}
        - {{ printf "--web.runbook-query-url=%s" . | quote }}
        {{- end }}
        {{- if .Cluster }}
        - --role=cluster
        {{- if include "lne.acts" . }}
        - --act.gpus={{ .Values.act.gpus }}
        - --act.effect={{ .Values.act.effect }}
        {{- range $scope, $share := .Values.act.ceiling }}
        - --act.ceiling.{{ $scope }}={{ $share }}
        {{- end }}
        - --act.pods={{ .Nodes | replace ": " "=" | replace "\n" "," }}
        - --act.port={{ .Values.port }}
        {{- end }}
        {{- else }}
        {{- if eq $driver "none" }}
        - --no-collector.gpu
        {{- else if eq $driver "host" }}
        - --gpu.nvml-library=/driver/{{ .Values.gpu.host.library }}
        {{- else if eq $driver "page" }}
        - --gpu.source={{ .Values.gpu.source }}
        {{- end }}
        {{- if not (or $needs.podResources .Values.ownership.processes) }}
        - --no-collector.ownership
        {{- else if not $needs.podResources }}
        - --ownership.pod-resources=
        {{- end }}
        - --discovery={{ if .Values.discovery.enabled }}pods{{ else }}none{{ end }}
        {{- if .Values.discovery.enabled }}
        {{- range .Values.discovery.namespaces }}
        - --discovery.namespace={{ . }}
        {{- end }}
        {{- end }}
        {{- if .Values.probeEngines }}
        - --probe.engines
        {{- end }}
        {{- if not .Values.gpu.kmsg }}
        - --gpu.kmsg=none
        {{- end }}
        {{- if and .Values.gpu.compatDCGM (ne $driver "none") }}
        - --compat.dcgm
        {{- end }}
        {{- end }}
        {{- with .Values.extraArgs }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
      env:
        {{- /* The image asks for all GPUs; void keeps runtimes that are not meant to hear this from adding any. */}}
        - {name: NVIDIA_VISIBLE_DEVICES, value: {{ get (dict "runtimeClass" "all" "defaultRuntime" "all" "volumeMounts" "/var/run/nvidia-container-devices") $driver | default "void" }}}
        {{- if has $driver (list "runtimeClass" "defaultRuntime" "volumeMounts") }}
        - {name: NVIDIA_DRIVER_CAPABILITIES, value: utility}
        {{- end }}
        {{- if eq $driver "page" }}
        - name: HOST_IP
          valueFrom: {fieldRef: {fieldPath: status.hostIP}}
        {{- end }}
        {{- if or .Values.discovery.enabled .Values.gpu.compatDCGM }}
        - name: NODE_NAME
          valueFrom: {fieldRef: {fieldPath: spec.nodeName}}
        {{- end }}
        {{- if include "lne.acts" . }}
        - name: POD_NAMESPACE
          valueFrom: {fieldRef: {fieldPath: metadata.namespace}}
        {{- end }}
        {{- with include "lne.softLimit" . }}
        - {name: GOMEMLIMIT, value: {{ . | quote }}}
        {{- end }}
        {{- with .Values.extraEnv }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
      ports:
        - {name: metrics, containerPort: {{ .Values.port }}, protocol: TCP}
      {{- if ne .Values.probes "none" }}
      livenessProbe: {{- include "lne.probe" (list . "/-/healthy" .Values.livenessProbe) | nindent 8 }}
      readinessProbe: {{- include "lne.probe" (list . "/-/ready" .Values.readinessProbe) | nindent 8 }}
      {{- end }}
      resources: {{- toYaml .Values.resources | nindent 8 }}
      securityContext: {{- toYaml (mergeOverwrite (include "lne.securityContext" . | fromYaml) .Values.securityContext) | nindent 8 }}
      volumeMounts:
        - {name: config, mountPath: /etc/llm-node-exporter/config, readOnly: true}
        {{- if .Values.webConfig.existingSecret }}
        - {name: web, mountPath: /etc/llm-node-exporter/web, readOnly: true}
        {{- end }}
        {{- include "lne.secretMounts" . | nindent 8 }}
        {{- if eq $driver "host" }}
        - {name: driver, mountPath: /driver, readOnly: true}
        {{- else if eq $driver "volumeMounts" }}
        - {name: all-gpus, mountPath: /var/run/nvidia-container-devices/all}
        {{- end }}
        {{- if .Values.gpu.kmsg }}
        - {name: kmsg, mountPath: /dev/kmsg, readOnly: true}
        {{- end }}
        {{- if $needs.podResources }}
        - {name: pod-resources, mountPath: /var/lib/kubelet/pod-resources, readOnly: true}
        {{- end }}
        {{- if .Values.ownership.processes }}
        - {name: pod-logs, mountPath: /var/log/pods, readOnly: true}
        {{- end }}
        {{- with .Values.extraVolumeMounts }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
    {{- with .Values.sidecars }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  volumes:
    - name: config
      configMap: {name: {{ include "lne.fullname" . }}}
    {{- with .Values.webConfig.existingSecret }}
    - name: web
      secret: {secretName: {{ . }}, defaultMode: 0o444}
    {{- end }}
    {{- include "lne.secretVolumes" . | nindent 4 }}
    {{- if eq $driver "host" }}
    - name: driver
      hostPath: {path: {{ .Values.gpu.host.path }}, type: Directory}
    {{- else if eq $driver "volumeMounts" }}
    - name: all-gpus
      hostPath: {path: /dev/null, type: CharDevice}
    {{- end }}
    {{- if .Values.gpu.kmsg }}
    - name: kmsg
      hostPath: {path: /dev/kmsg, type: CharDevice}
    {{- end }}
    {{- if $needs.podResources }}
    - name: pod-resources
      hostPath: {path: {{ .Values.ownership.kubeletDir }}/pod-resources, type: Directory}
    {{- end }}
    {{- if .Values.ownership.processes }}
    - name: pod-logs
      hostPath: {path: /var/log/pods, type: Directory}
    {{- end }}
    {{- with .Values.extraVolumes }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
{{- end -}}
