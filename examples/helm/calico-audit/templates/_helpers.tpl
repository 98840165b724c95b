{{/* Labels of every object, beside those that the kustomizations set. */}}
{{- define "calico-audit.labels" -}}
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

{{/* Fails if values contradict each other, and says what to set. */}}
{{- define "calico-audit.check" -}}
{{- with .Values.agent }}
{{- if and .tls.certManager (not .tls.enabled) }}
{{- fail "agent.tls.certManager is true and agent.tls.enabled is false: set agent.tls.enabled=true" }}
{{- else if and .enabled (not .tls.enabled) (not .insecure) }}
{{- fail "agent.tls.enabled is false: everyone who can reach the nodes could then read the agents' host views, and none would count as proof; set agent.insecure=true to accept that" }}
{{- else if and .enabled .tls.enabled .insecure }}
{{- fail "agent.insecure is true and agent.tls.enabled is true: set one of them to false" }}
{{- else if and .enabled .tls.enabled (not .tls.certManager) (not .tls.secret) }}
{{- fail "the agents have no certificate: set agent.tls.certManager=true, or agent.tls.secret to the name of a Secret with tls.crt, tls.key and ca.crt for the name calico-audit-agent; or do without (agent.tls.enabled=false and agent.insecure=true)" }}
{{- end }}
{{- end }}
{{- if and (has (toString .Values.guardRails.mode) (list "warn" "deny")) (semverCompare "<1.31.0-0" .Capabilities.KubeVersion.Version) }}
{{- fail (printf "guardRails.mode requires Kubernetes 1.31 or newer, and this is %s: set guardRails.mode=off" .Capabilities.KubeVersion.Version) }}
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

{{/*
Objects of a file that "make generate" takes from examples/kubernetes, in the namespace of
the release. Those of consolidation stay in "kube-system", where its Lease is. A service
account that the values name exists already, and gets the rights.
*/}}
{{- define "calico-audit.objects" -}}
{{- $root := .root }}
{{- $file := .file }}
{{- $namespace := $root.Release.Namespace }}
{{- $accounts := dict }}
{{- range $name := list "exporter" "agent" "repair" }}
{{- $_ := set $accounts (printf "calico-audit-%s" $name) ((get $root.Values $name).serviceAccount | default dict) }}
{{- end }}
{{- range $text := regexSplit "(?m)^---$" ($root.Files.Get (printf "files/%s.yaml" $file)) -1 }}
{{- $o := fromYaml $text }}
{{- $_ := set $o.metadata "labels" (merge (fromYaml (include "calico-audit.labels" $root)) ($o.metadata.labels | default dict)) }}
{{- if and $o.metadata.namespace (ne $file "rbac-consolidate") }}
{{- $_ := set $o.metadata "namespace" $namespace }}
{{- end }}
{{- range $o.subjects }}
{{- $_ := set . "namespace" $namespace }}
{{- $_ := set . "name" ((get $accounts .name | default dict).name | default .name) }}
{{- end }}
{{- $account := dict }}
{{- if eq $o.kind "ServiceAccount" }}
{{- $account = get $accounts $o.metadata.name | default dict }}
{{- with $account.annotations }}
{{- $_ := set $o.metadata "annotations" . }}
{{- end }}
{{- end }}
{{- if and (eq $o.kind "ValidatingAdmissionPolicyBinding") (eq (toString $root.Values.guardRails.mode) "warn") }}
{{- $_ := set $o.spec "validationActions" (list "Warn" "Audit") }}
{{- end }}
{{- if not $account.name }}
---
{{ toYaml $o }}
{{- end }}
{{- end }}
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
