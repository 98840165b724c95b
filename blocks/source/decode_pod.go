package source

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

func annotationField(key string) string { return "metadata.annotations[" + key + "]" }

// podBuilder makes a workload out of a pod's fields, whether they come as JSON
// or as protobuf.
type podBuilder struct {
	d      *decoder
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
		a, ok := parseAddr(string(one))
		switch {
		case !ok:
			b.fault(annotationField(string(key)), notA("address", one))
		case !slices.Contains(b.pod.AnnotationIPs, a):
			b.pod.AnnotationIPs = append(b.pod.AnnotationIPs, a)
		}
	}
}

func (b *podBuilder) pools(key, value []byte) []string {
	names, ok := b.d.poolNames(value)
	if !ok {
		b.fault(annotationField(string(key)), notA("JSON list of pools", value))
	}
	return names
}

// statusIP adds an entry of status.podIPs.
func (b *podBuilder) statusIP(value []byte) {
	if len(value) == 0 {
		return
	}
	a, ok := parseAddr(string(value))
	switch {
	case !ok:
		field := "status.podIPs[" + strconv.Itoa(len(b.pod.StatusIPs)) + "].ip"
		b.fault(field, notA("address", value))
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

// finish adds the pod to what was read.
func (b *podBuilder) finish() {
	p := &b.pod
	// status.podIP repeats the first of podIPs. A pod of Calico's may have it
	// alone on a cluster older than dual-stack.
	if a, ok := parseAddr(string(b.podIP)); ok && !slices.Contains(p.StatusIPs, a) {
		p.StatusIPs = append(p.StatusIPs, a)
	} else if !ok && len(b.podIP) > 0 {
		b.fault("status.podIP", notA("address", b.podIP))
	}
	slices.SortFunc(p.AnnotationIPs, netip.Addr.Compare)
	slices.SortFunc(p.NetworkIPs, netip.Addr.Compare)
	p.StatusIPs, p.AnnotationIPs, p.NetworkIPs = slices.Clip(p.StatusIPs), slices.Clip(p.AnnotationIPs), slices.Clip(p.NetworkIPs)
	for _, f := range b.faults {
		if p.Unreadable == "" && mayNameAddress(f.field) {
			p.Unreadable = f.field
		}
		b.d.gap(blocks.Pods, &blocks.Meta{Name: p.FullName()}, f).Held = heldField(f.field)
	}
	b.d.out.workloads = append(b.d.out.workloads, *p)
}

// pod reads a pod.
func (d *decoder) pod(r *jsonReader) {
	b := podBuilder{d: d}
	p := &b.pod
	if !r.object(func(key []byte) {
		switch string(key) {
		case "metadata":
			d.meta(r, &p.Meta, b.hooks())
		case "spec":
			r.object(func(key []byte) {
				switch string(key) {
				case "nodeName":
					p.Node = d.text(r)
				case "hostNetwork":
					p.HostNetwork, _ = r.boolean()
				}
			})
		case "status":
			r.object(func(key []byte) { b.readStatus(r, key) })
		}
	}) {
		if r.err == nil {
			d.gap(blocks.Pods, &p.Meta, firstFault(r))
		}
		return
	}
	checkName(r, &p.Meta)
	if p.Name == "" {
		d.gap(blocks.Pods, &p.Meta, r.faults[0])
		return
	}
	b.faults = append(b.faults, r.faults...)
	b.finish()
}

func (b *podBuilder) readStatus(r *jsonReader, key []byte) {
	switch string(key) {
	case "phase":
		b.pod.Phase = b.d.text(r)
	case "podIP":
		b.podIP, _ = r.str()
	case "podIPs":
		r.array(func(int) {
			r.object(func(key []byte) {
				if string(key) == "ip" {
					ip, _ := r.str()
					b.statusIP(ip)
				}
			})
		})
	case "startTime":
		b.pod.Started = b.d.seenTime(r)
	case "conditions":
		if b.d.newest != nil {
			clockOnly(r, func() { b.d.sawEntries(r, "lastTransitionTime") })
		}
	}
}

// namespaceBuilder makes a namespace out of its fields.
type namespaceBuilder struct {
	d      *decoder
	ns     blocks.Namespace
	faults []fault
}

func (b *namespaceBuilder) label(key, value []byte) {
	if b.ns.Labels == nil {
		b.ns.Labels = map[string]string{}
	}
	b.ns.Labels[b.d.str(key)] = b.d.str(value)
}

func (b *namespaceBuilder) annotation(key, value []byte) {
	var into *[]string
	switch string(key) {
	case annotationPoolsV4:
		into = &b.ns.PoolsV4
	case annotationPoolsV6:
		into = &b.ns.PoolsV6
	default:
		return
	}
	names, ok := b.d.poolNames(value)
	if !ok {
		b.faults = append(b.faults, fault{"metadata.annotations[" + string(key) + "]", notA("JSON list of pools", value)})
	}
	*into = names
}

// finish adds the namespace to what was read.
func (b *namespaceBuilder) finish() {
	b.d.gapPerFault(blocks.Namespaces, b.ns.Name, b.faults)
	b.d.out.namespaces = append(b.d.out.namespaces, b.ns)
}

// namespace reads a namespace.
func (d *decoder) namespace(r *jsonReader) {
	b := namespaceBuilder{d: d}
	found := r.object(func(key []byte) {
		if string(key) == "metadata" {
			d.meta(r, &b.ns.Meta, metaHooks{label: b.label, annotation: b.annotation})
		}
	})
	if r.err != nil {
		return
	}
	checkName(r, &b.ns.Meta)
	if !found || b.ns.Name == "" {
		d.gap(blocks.Namespaces, &b.ns.Meta, firstFault(r))
		return
	}
	b.faults = append(b.faults, r.faults...)
	b.finish()
}
