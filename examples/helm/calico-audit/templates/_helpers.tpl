{{/* Labels of every object, beside those that the kustomizations set. */}}
{{- define "calico-audit.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
app.kubernetes.io/part-of: calico-audit
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end }}

{{/* The image: by digest, by tag, or by the chart's appVersion. */}}
{{- define "calico-audit.image" -}}
{{- $repository := required "image.repository is empty: name the image as your nodes pull it; there is no published one (examples/kubernetes/README.md says how to make it)" .Values.image.repository -}}
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

{{/*
Objects of a file that "make generate" takes from examples/kubernetes, in the namespace of
the release. Those of consolidation stay in "kube-system", where its Lease is.
*/}}
{{- define "calico-audit.objects" -}}
{{- $root := .root }}
{{- $file := .file }}
{{- $namespace := $root.Release.Namespace }}
{{- range $text := regexSplit "(?m)^---$" ($root.Files.Get (printf "files/%s.yaml" $file)) -1 }}
{{- $o := fromYaml $text }}
{{- $_ := set $o.metadata "labels" (merge (fromYaml (include "calico-audit.labels" $root)) ($o.metadata.labels | default dict)) }}
{{- if and $o.metadata.namespace (ne $file "rbac-consolidate") }}
{{- $_ := set $o.metadata "namespace" $namespace }}
{{- end }}
{{- range $o.subjects }}
{{- $_ := set . "namespace" $namespace }}
{{- end }}
{{- if and (eq $o.kind "ValidatingAdmissionPolicyBinding") (eq (toString $root.Values.guardRails.mode) "warn") }}
{{- $_ := set $o.spec "validationActions" (list "Warn" "Audit") }}
{{- end }}
---
{{ toYaml $o }}
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
