package decode

import (
	"bytes"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/calico-audit/calico-audit/blocks"
)

// Calico's annotations on pods and namespaces (libcalico-go
// backend/k8s/conversion/constants.go, cni-plugin pkg/k8s/k8s.go).
const (
	annotationPodIP       = "cni.projectcalico.org/podIP"
	annotationPodIPs      = "cni.projectcalico.org/podIPs"
	annotationContainerID = "cni.projectcalico.org/containerID"
	annotationPoolsV4     = "cni.projectcalico.org/ipv4pools"
	annotationPoolsV6     = "cni.projectcalico.org/ipv6pools"
	annotationAddresses   = "cni.projectcalico.org/ipAddrs"
)

// Annotations by which a pod's author asks not to evict it, of the cluster autoscaler
// (cluster-autoscaler/utils/drain, PodSafeToEvictKey) and of the descheduler.
const (
	annotationSafeToEvict     = "cluster-autoscaler.kubernetes.io/safe-to-evict"
	annotationPreventEviction = "descheduler.alpha.kubernetes.io/prevent-eviction"
)

var pods = describe(Kind{
	Resource: blocks.Pods, Names: []string{"Pod"}, Core: true, Namespaced: true,
	keeps:    podMask(&fieldMask{key: "labels", num: 11, form: formMap, wants: func(k string) bool { return k == labelVM }, role: roleVM}),
	labelled: podMask(allLabels),
}, column[blocks.Workload]{
	json: (*Decoder).pod, compare: blocks.CompareWorkloads,
	in: func(s *blocks.Snapshot) *[]blocks.Workload { return &s.Workloads },
})

func podMask(labels *fieldMask) *fieldMask {
	return object("", 0,
		metaMask(rolePod, false, podAnnotations, ownersMask(map[string]*fieldMask{kindVMI: vmOwner, "": otherOwner}), labels),
		object("spec", 2,
			value("nodeName", 10, roleNode),
			&fieldMask{key: "hostNetwork", num: 11, form: formBool, role: roleNumber},
			listOf("volumes", 1, needing(":", object("", 0, object("", 2, object("persistentVolumeClaim", 10), object("ephemeral", 29)))))),
		object("status", 3,
			&fieldMask{key: "conditions", num: 2, form: formList, parts: []*fieldMask{condition}, by: map[string]*fieldMask{"Ready": condition}},
			value("phase", 1, roleWord),
			value("podIP", 6, roleAddresses),
			listOf("podIPs", 12, object("", 0, value("ip", 1, roleAddresses))),
			&fieldMask{key: "startTime", num: 7, form: formTime, role: roleTime}))
}

var podAnnotations = &fieldMask{key: "annotations", num: 12, form: formMap, wants: podAnnotation, roles: map[string]role{
	annotationPodIP: roleAddresses, annotationPodIPs: roleAddresses, annotationContainerID: roleSandbox,
	annotationPoolsV4: rolePoolList, annotationPoolsV6: rolePoolList,
	annotationNetworks: roleNetworks, annotationNetworksOld: roleNetworks,
	annotationAddresses: roleStub, annotationSafeToEvict: roleBool, annotationPreventEviction: roleBool,
}}

// condition keeps what an entry of status.conditions says.
var condition = object("", 0, value("type", 1, roleWord), value("status", 2, roleWord))

// podAnnotation reports whether a pod's annotation is kept.
func podAnnotation(key string) bool {
	switch key {
	case annotationNetworks, annotationNetworksOld, annotationSafeToEvict, annotationPreventEviction:
		return true
	}
	return calicoAnnotation(key)
}

func annotationField(key string) string { return "metadata.annotations[" + key + "]" }

// podBuilder makes a workload out of a pod's fields.
type podBuilder struct {
	d      *Decoder
	pod    blocks.Workload
	podIP  []byte // status.podIP, which old clusters have alone
	faults []fault
}

func (b *podBuilder) hooks() metaHooks {
	return metaHooks{label: b.label, annotation: b.annotation, owner: b.owner, noWritten: true}
}

func (b *podBuilder) annotation(key, value []byte) {
	switch string(key) {
	case annotationPodIP:
		b.pod.NetworkRemoved = len(value) == 0
		b.annotationIPs(key, value)
	case annotationPodIPs:
		b.annotationIPs(key, value)
	case annotationContainerID:
		b.pod.ContainerID = string(value)
	case annotationPoolsV4:
		b.pod.PoolsV4 = b.pools(key, value)
	case annotationPoolsV6:
		b.pod.PoolsV6 = b.pools(key, value)
	case annotationAddresses:
		b.pod.StaticAddress = len(value) > 0
	case annotationSafeToEvict:
		b.pod.NoEviction = b.pod.NoEviction || string(value) == "false"
	case annotationPreventEviction:
		b.pod.NoEviction = b.pod.NoEviction || string(value) != "false"
	case annotationNetworks, annotationNetworksOld:
		var reason string
		if b.pod.NetworkIPs, reason = networkIPs(b.pod.NetworkIPs, value); reason != "" {
			b.fault(annotationField(string(key)), reason)
		}
	}
}

// label and owner tell which virtual machine the pod runs. KubeVirt's label may be a
// shortened name, so that the owner reference counts where there are both.
func (b *podBuilder) label(key, value []byte) {
	if string(key) == labelVM && b.pod.VM == "" {
		b.pod.VM = b.d.str(value)
	}
	if b.d.PodLabels {
		if b.pod.Labels == nil {
			b.pod.Labels = map[string]string{}
		}
		b.pod.Labels[b.d.str(key)] = b.d.str(value)
	}
}

func (b *podBuilder) owner(o ownerRef) {
	if o.is(kindVMI) && len(o.name) > 0 {
		b.pod.VM = b.d.str(o.name)
	}
	if o.controller {
		b.pod.Controller = b.d.Strings.controller(o)
	}
}

// annotationIPs adds the addresses of an annotation: "10.0.0.1/32", or several
// with commas between. Both annotations name the first.
func (b *podBuilder) annotationIPs(key, value []byte) {
	for one := range bytes.SplitSeq(value, []byte(",")) {
		if one = bytes.TrimSpace(one); len(one) == 0 {
			continue
		}
		a, ok := ParseAddr(string(one))
		switch {
		case !ok:
			b.fault(annotationField(string(key)), NotA("address", one))
		case !slices.Contains(b.pod.AnnotationIPs, a):
			b.pod.AnnotationIPs = append(b.pod.AnnotationIPs, a)
		}
	}
}

func (b *podBuilder) pools(key, value []byte) []string {
	names, ok := b.d.poolNames(value)
	if !ok {
		b.fault(annotationField(string(key)), NotA("JSON list of pools", value))
	}
	return names
}

// statusIP adds an entry of status.podIPs.
func (b *podBuilder) statusIP(value []byte) {
	if len(value) == 0 {
		return
	}
	a, ok := ParseAddr(string(value))
	switch {
	case !ok:
		field := "status.podIPs[" + strconv.Itoa(len(b.pod.StatusIPs)) + "].ip"
		b.fault(field, NotA("address", value))
	case !slices.Contains(b.pod.StatusIPs, a):
		b.pod.StatusIPs = append(b.pod.StatusIPs, a)
	}
}

func (b *podBuilder) fault(field, reason string) {
	if len(b.faults) < maxFaults {
		b.faults = append(b.faults, fault{field, reason})
	}
}

// mayNameAddress reports whether a field of a pod, one that cannot be parsed, may
// name an address of it.
func mayNameAddress(field string) bool {
	switch field {
	case "status", "metadata.annotations":
		return true
	}
	return heldField(field) && field != annotationField(annotationPoolsV4) && field != annotationField(annotationPoolsV6)
}

// heldField reports whether a field of a pod that cannot be parsed makes no verdict
// unsafe ([blocks.Gap.Held]). For one that names addresses, [blocks.Workload.Unreadable]
// stands in. A pod whose request for pools is not JSON gets no address from Calico at
// all (cni-plugin pkg/k8s, CmdAddK8s), and keeps one that it has: no address depends
// on what it asks for. All of these but the status are for the pod's author to write,
// so that any of them could keep the audit of a whole cluster from being complete.
func heldField(field string) bool {
	if strings.HasPrefix(field, "status.podIP") {
		return true
	}
	switch key, _ := strings.CutPrefix(field, "metadata.annotations"); key {
	case "[" + annotationPodIP + "]", "[" + annotationPodIPs + "]", "[" + annotationNetworks + "]", "[" + annotationNetworksOld + "]",
		"[" + annotationPoolsV4 + "]", "[" + annotationPoolsV6 + "]":
		return true
	}
	return false
}

// finish returns the pod.
func (b *podBuilder) finish() blocks.Workload {
	p := &b.pod
	p.Namespace = b.d.inNamespace
	p.Labels = b.d.Strings.labels(p.Labels)
	// status.podIP repeats the first of podIPs. A pod of Calico's may have it
	// alone on a cluster older than dual-stack.
	if a, ok := ParseAddr(string(b.podIP)); ok && !slices.Contains(p.StatusIPs, a) {
		p.StatusIPs = append(p.StatusIPs, a)
	} else if !ok && len(b.podIP) > 0 {
		b.fault("status.podIP", NotA("address", b.podIP))
	}
	slices.SortFunc(p.AnnotationIPs, netip.Addr.Compare)
	slices.SortFunc(p.NetworkIPs, netip.Addr.Compare)
	p.StatusIPs, p.AnnotationIPs, p.NetworkIPs = slices.Clip(p.StatusIPs), slices.Clip(p.AnnotationIPs), slices.Clip(p.NetworkIPs)
	for _, f := range b.faults {
		if p.Unreadable == "" && mayNameAddress(f.Field) {
			p.Unreadable = f.Field
		}
		b.d.gap(&p.Meta, f).Held = heldField(f.Field)
	}
	return *p
}

// pod reads a pod.
func (d *Decoder) pod(r *JSONReader) (blocks.Workload, bool) {
	b := podBuilder{d: d}
	p := &b.pod
	found := d.object(r, &p.Meta, b.hooks(), func(key []byte) {
		switch string(key) {
		case "nodeName":
			p.Node = d.text(r)
		case "hostNetwork":
			p.HostNetwork, _ = r.Boolean()
		case "volumes":
			b.volumes(r)
		}
	}, func(key []byte) { b.readStatus(r, key) })
	if !d.named(r, &p.Meta, found) {
		return *p, false
	}
	b.faults = append(b.faults, r.Faults...)
	return b.finish(), true
}

func (b *podBuilder) readStatus(r *JSONReader, key []byte) {
	switch string(key) {
	case "phase":
		b.pod.Phase = b.d.text(r)
	case "podIP":
		b.podIP, _ = r.str()
	case "podIPs":
		r.Array(func(int) {
			r.Object(func(key []byte) {
				if string(key) == "ip" {
					ip, _ := r.str()
					b.statusIP(ip)
				}
			})
		})
	case "startTime":
		b.pod.Started = b.d.seenTime(r)
	case "conditions":
		quietly(r, func() { b.conditions(r) })
	}
}

// conditions reads whether the pod is ready.
func (b *podBuilder) conditions(r *JSONReader) {
	r.Array(func(int) {
		var kind, status []byte
		r.Object(func(key []byte) {
			switch string(key) {
			case "type":
				kind, _ = r.str()
			case "status":
				status, _ = r.str()
			case "lastTransitionTime":
				if b.d.Newest != nil {
					b.d.seenTime(r)
				}
			}
		})
		b.pod.Ready = b.pod.Ready || string(kind) == "Ready" && string(status) == "True"
	})
}

// volumes reads whether one of the pod's is a claim.
func (b *podBuilder) volumes(r *JSONReader) {
	quietly(r, func() {
		r.Array(func(int) {
			r.Object(func(key []byte) {
				if string(key) == "persistentVolumeClaim" || string(key) == "ephemeral" {
					b.pod.HasClaim = b.pod.HasClaim || r.Peek() == '{'
				}
			})
		})
	})
}
