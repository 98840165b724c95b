{{/*
The rules for reading what an audit reads, with the given verbs. "make generate" updates the
lists of resources.
*/}}
{{- define "calico-audit.reads" }}
# Calico's objects in the API group of most clusters.
- apiGroups: ["crd.projectcalico.org"]
  resources:
  - ippools
  - ipamblocks
  - blockaffinities
  - ipamhandles
  - ipamconfigs
  - ipreservations
  - clusterinformations
  - kubecontrollersconfigurations
  - felixconfigurations
  - bgpconfigurations
  - bgppeers
  - bgpfilters
  verbs: {{ . }}
# The same objects in the newer API group. A cluster stores its data in one of the two
# groups. During a migration both are served, so both are allowed.
- apiGroups: ["projectcalico.org"]
  resources:
  - ippools
  - ipamblocks
  - blockaffinities
  - ipamhandles
  - ipamconfigurations
  - ipreservations
  - clusterinformations
  - kubecontrollersconfigurations
  - felixconfigurations
  - bgpconfigurations
  - bgppeers
  - bgpfilters
  verbs: {{ . }}
# The users of addresses. Kubernetes cannot grant access to a part of an object: listing
# pods shows their whole spec.
- apiGroups: [""]
  resources:
  - nodes
  - pods
  - namespaces
  verbs: {{ . }}
# Virtual machines, which own addresses even while they are stopped. Only their metadata
# is requested. The rule has no effect without KubeVirt.
- apiGroups: ["kubevirt.io"]
  resources:
  - virtualmachines
  - virtualmachineinstances
  verbs: {{ . }}
# Whereabouts' records of the addresses of secondary networks, and these networks. The
# rules have no effect without Whereabouts.
- apiGroups: ["whereabouts.cni.cncf.io"]
  resources:
  - ippools
  - overlappingrangeipreservations
  - nodeslicepools
  verbs: {{ . }}
- apiGroups: ["k8s.cni.cncf.io"]
  resources:
  - network-attachment-definitions
  verbs: {{ . }}
# Calico's migration to its newer API group, which shows the group in use. The rule has no
# effect before Calico v3.32.
- apiGroups: ["migration.projectcalico.org"]
  resources:
  - datastoremigrations
  verbs: {{ . }}
{{- end }}
