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
)

var pods = describe(Kind{
	Resource: blocks.Pods, Names: []string{"Pod"}, Core: true, Namespaced: true,
	keeps: object("", 0,
		metaMask(rolePod, false, podAnnotations, ownersMask(kindVMI),
			&fieldMask{key: "labels", num: 11, form: formMap, wants: func(k string) bool { return k == labelVM }, role: roleVM}),
		object("spec", 2,
			value("nodeName", 10, roleNode),
			&fieldMask{key: "hostNetwork", num: 11, form: formBool, role: roleNumber}),
		object("status", 3,
			value("phase", 1, roleWord),
			value("podIP", 6, roleAddresses),
			listOf("podIPs", 12, object("", 0, value("ip", 1, roleAddresses))),
			&fieldMask{key: "startTime", num: 7, form: formTime, role: roleTime})),
}, column[blocks.Workload]{
	json: (*Decoder).pod, compare: blocks.CompareWorkloads,
	in: func(s *blocks.Snapshot) *[]blocks.Workload { return &s.Workloads },
})

var podAnnotations = &fieldMask{key: "annotations", num: 12, form: formMap, wants: podAnnotation, roles: map[string]role{
	annotationPodIP: roleAddresses, annotationPodIPs: roleAddresses, annotationContainerID: roleSandbox,
	annotationPoolsV4: rolePoolList, annotationPoolsV6: rolePoolList,
	annotationNetworks: roleNetworks, annotationNetworksOld: roleNetworks,
}}

// podAnnotation reports whether a pod's annotation is kept.
func podAnnotation(key string) bool {
	return calicoAnnotation(key) || key == annotationNetworks || key == annotationNetworksOld
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
	return metaHooks{label: b.label, annotation: b.annotation, owner: b.owner, noWritten: true,
		namespace: func(v []byte) { b.pod.Namespace = b.d.str(v) }}
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
}

func (b *podBuilder) owner(o ownerRef) {
	if o.is(kindVMI) && len(o.name) > 0 {
		b.pod.VM = b.d.str(o.name)
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
		b.d.gap(&blocks.Meta{Name: p.FullName()}, f).Held = heldField(f.Field)
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
		if b.d.Newest != nil {
			clockOnly(r, func() { b.d.sawEntries(r, "lastTransitionTime") })
		}
	}
}
