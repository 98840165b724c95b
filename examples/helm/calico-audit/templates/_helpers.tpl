{{/* Labels of every object. "make generate" leaves them out of examples/kubernetes. */}}
{{- define "calico-audit.labels" -}}
labels:
  helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
  app.kubernetes.io/part-of: calico-audit
  app.kubernetes.io/instance: {{ .Release.Name }}
  app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end }}

{{/*
The image: by digest, by tag, or by the chart's appVersion. A released chart knows its
repository.
*/}}
{{- define "calico-audit.image" -}}
{{- $released := .Files.Get "files/image-repository" | trim -}}
{{- $repository := required "image.repository is empty: name the image as your nodes pull it; there is no published one (examples/kubernetes/README.md says how to make it)" (.Values.image.repository | default $released) -}}
{{- if .Values.image.digest -}}
{{ $repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ $repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end -}}
{{- end }}

{{/* What all pods' specifications begin with. */}}
{{- define "calico-audit.pullSecrets" -}}
{{- with .Values.image.pullSecrets }}
imagePullSecrets:
{{- range . }}
- name: {{ . }}
{{- end }}
{{- end }}
{{- end }}

{{/* The Secret with the agents' certificate. */}}
{{- define "calico-audit.agentSecret" -}}
{{ .Values.agent.tls.secret | default "calico-audit-agent-tls" }}
{{- end }}

{{/* A component's service account: the chart's, or that of its values. */}}
{{- define "calico-audit.account" -}}
{{ (.values.serviceAccount | default dict).name | default .name }}
{{- end }}

{{/* Labels and annotations of a component's pods: its own, and those of its values. */}}
{{- define "calico-audit.podMetadata" -}}
labels:
  {{- toYaml (merge (dict "app.kubernetes.io/name" .name) (.values.podLabels | default dict)) | nindent 2 }}
{{- with merge (.annotations | default dict) (.values.podAnnotations | default dict) }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{/* A duration of Prometheus, such as 1h30m, in milliseconds. */}}
{{- define "calico-audit.milliseconds" -}}
{{- $units := dict "ms" 1 "s" 1000 "m" 60000 "h" 3600000 "d" 86400000 "w" 604800000 "y" 31536000000 }}
{{- $sum := 0 }}
{{- range regexFindAll "[0-9]+[a-z]+" . -1 }}
{{- $sum = add $sum (mul (regexFind "[0-9]+" . | int64) (get $units (regexFind "[a-z]+" .) | int64)) }}
{{- end }}
{{- $sum }}
{{- end }}

{{/* The alerts, with the changes of the values. */}}
{{- define "calico-audit.rules" -}}
{{- $values := .Values.monitoring }}
{{- $rules := .Files.Get "files/calico-audit.rules.yaml" }}
{{- with $values.runbookURL }}
{{- $rules = replace "https://github.com/calico-audit/calico-audit/blob/main/metrics/ALERTS.md#" . $rules }}
{{- end }}
{{- if not (or $values.alerts $values.alertLabels) }}
{{- regexReplaceAll "(?s)^.*\\ngroups:" $rules "groups:" | trim }}
{{- else }}
{{- $rules = fromYaml $rules }}
{{- $thresholds := dict "CalicoPoolRunway" "1209600" "CalicoPoolBlocksRunOut" "86400" "CalicoLeaksPileUp" "10" "CalicoAuditStale" "900" }}
{{- $changes := $values.alerts | default dict }}
{{- $names := list }}
{{- range $group := $rules.groups }}
{{- $kept := list }}
{{- range $rule := $group.rules }}
{{- $change := get $changes ($rule.alert | default "") | default dict }}
{{- if $rule.alert }}
{{- $names = append $names $rule.alert }}
{{- $_ := set $rule "labels" (merge (dict) ($change.labels | default dict) ($values.alertLabels | default dict) $rule.labels) }}
{{- with $change.for }}
{{- $_ := set $rule "for" . }}
{{- end }}
{{- if hasKey $change "threshold" }}
{{- if not (hasKey $thresholds $rule.alert) }}
{{- fail (printf "monitoring.alerts.%s has no threshold; these have one: %s" $rule.alert (keys $thresholds | sortAlpha | join ", ")) }}
{{- end }}
{{- $_ := set $rule "expr" (regexReplaceAll (printf "([<>]) %s\\b" (get $thresholds $rule.alert)) $rule.expr (printf "${1} %d" (int64 $change.threshold))) }}
{{- end }}
{{- end }}
{{- if ne (toString $change.enabled) "false" }}
{{- $kept = append $kept $rule }}
{{- end }}
{{- end }}
{{- $_ := set $group "rules" $kept }}
{{- end }}
{{- range $name := keys $changes }}
{{- if not (has $name $names) }}
{{- fail (printf "monitoring.alerts.%s: there is no such alert; metrics/ALERTS.md lists them" $name) }}
{{- end }}
{{- end }}
{{- toYaml $rules }}
{{- end }}
{{- end }}

{{/* A ClusterRoleBinding: its name, the ClusterRole, and the service account. */}}
{{- define "calico-audit.binding" }}
{{- $root := index . 0 }}
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata:
  name: {{ index . 1 }}
  {{- include "calico-audit.labels" $root | nindent 2 }}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: ClusterRole
  name: {{ index . 2 }}
subjects:
- kind: ServiceAccount
  name: {{ index . 3 }}
  namespace: {{ $root.Release.Namespace }}
{{- end }}

{{/* What the guard rails do, and where the objects are on which they depend. */}}
{{- define "calico-audit.railActions" -}}
{{ ternary `["Warn", "Audit"]` `["Deny"]` (eq (toString .Values.guardRails.mode) "warn") }}
{{- end }}
{{- define "calico-audit.railGroup" -}}
{{ ternary "projectcalico.org/v3" "crd.projectcalico.org/v1" .Values.guardRails.native }}
{{- end }}

{{/* Rules of a NetworkPolicy that let pods reach the API servers, and nothing else. */}}
{{- define "calico-audit.egress" -}}
egress:
{{- range .Values.networkPolicy.apiServers }}
- to:
  - ipBlock:
      cidr: {{ .cidr }}
  ports:
  - protocol: TCP
    port: {{ .port }}
{{- end }}
{{- end }}
