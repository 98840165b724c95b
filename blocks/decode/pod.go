package decode

import (
	"bytes"
	"cmp"
	"encoding/json"
	"net/netip"
	"slices"
	"strings"

	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/blocks/decode/keep"
	"github.com/calico-audit/calico-audit/blocks/decode/parse"
	"github.com/calico-audit/calico-audit/blocks/decode/podspec"
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
	annotationFloating    = "cni.projectcalico.org/floatingIPs"
	annotationNoIPAM      = "cni.projectcalico.org/ipAddrsNoIpam"
)

// Annotations that ask not to evict a pod, for the cluster autoscaler
// (cluster-autoscaler/utils/drain, PodSafeToEvictKey) and the descheduler.
const (
	annotationSafeToEvict     = "cluster-autoscaler.kubernetes.io/safe-to-evict"
	annotationPreventEviction = "descheduler.alpha.kubernetes.io/prevent-eviction"
)

var pods = describe(Kind{
	Resource: blocks.Pods, Names: []string{"Pod"}, Core: true, Namespaced: true, ByNode: true, tolerates: toleratedField,
	Absent:   always("no Pod in the files"),
	LeftOut:  blocks.PodsLeftOut,
	keeps:    podMask(&parse.Mask{Key: "labels", Num: 11, Schema: parse.SchemaMap, Wants: func(key []byte) bool { return string(key) == labelVM }, Class: keep.VM}),
	labelled: podMask(keep.AllLabels),
}, descriptor[blocks.Workload]{
	json:   (*Decoder).pod,
	shared: func(s *blocks.Snapshot) *[]*blocks.Workload { return &s.Workloads },
})

func podMask(labels *parse.Mask) *parse.Mask {
	return parse.Object("", 0,
		keep.Meta(keep.Pod, false, podAnnotations, keep.OwnerReferences(map[string]*parse.Mask{kindVMI: keep.OfVM, "": keep.OfController}), labels),
		parse.Object("spec", 2, append(slices.Clip(rulesMask.Parts),
			parse.Value("nodeName", 10, keep.Node),
			&parse.Mask{Key: "hostNetwork", Num: 11, Schema: parse.SchemaBool, Class: keep.Number})...),
		parse.Object("status", 3,
			&parse.Mask{Key: "conditions", Num: 2, Schema: parse.SchemaList, Parts: []*parse.Mask{condition}, By: map[string]*parse.Mask{"Ready": condition, "DisruptionTarget": condition}},
			parse.List("containerStatuses", 8, parse.Requiring("finishedAt", parse.Object("", 0, parse.Object("state", 2, parse.Object("terminated", 3, keep.TimeField("finishedAt", 6)))))),
			&parse.Mask{Key: "initContainerStatuses", Num: 10, Schema: parse.SchemaList, Parts: []*parse.Mask{upgradeIPAM}, By: map[string]*parse.Mask{blocks.UpgradeIPAM: upgradeIPAM}},
			parse.Value("phase", 1, keep.Word),
			parse.Value("podIP", 6, keep.Addresses),
			parse.List("podIPs", 12, parse.Object("", 0, parse.Value("ip", 1, keep.Addresses))),
			keep.TimeField("startTime", 7)))
}

var podAnnotations = &parse.Mask{Key: "annotations", Num: 12, Schema: parse.SchemaMap, Wants: podAnnotation, Classes: map[string]keep.Class{
	annotationPodIP: keep.Addresses, annotationPodIPs: keep.Addresses, annotationContainerID: keep.Sandbox,
	annotationPoolsV4: keep.PoolList, annotationPoolsV6: keep.PoolList,
	annotationNetworks: keep.Networks, annotationNetworksOld: keep.Networks, annotationAsks: keep.Asks,
	annotationAddresses: keep.AddressJSON, annotationFloating: keep.AddressJSON, annotationNoIPAM: keep.Stub, annotationSafeToEvict: keep.Bool, annotationPreventEviction: keep.Bool,
}}

// upgradeIPAM keeps the status of an init container.
var upgradeIPAM = parse.Object("", 0, parse.Value("name", 1, keep.Word), &parse.Mask{Key: "ready", Num: 4, Schema: parse.SchemaBool, Class: keep.Number})

// condition keeps type, status and time of an entry of status.conditions.
var condition = parse.Object("", 0, parse.Value("type", 1, keep.Word), parse.Value("status", 2, keep.Word), keep.TimeField("lastTransitionTime", 4))

// podAnnotation reports whether a pod's annotation is kept.
func podAnnotation(key []byte) bool {
	switch string(key) {
	case annotationNetworks, annotationNetworksOld, annotationAsks, annotationSafeToEvict, annotationPreventEviction:
		return true
	}
	return keep.OfCalico(key)
}

func annotationField(key string) string { return "metadata.annotations[" + key + "]" }

// pod decodes a pod.
func (d *Decoder) pod(r *parse.Reader, p *blocks.Workload) bool {
	var podIP []byte      // status.podIP; old clusters have no podIPs
	var ended blocks.Time // the latest change of a kept condition or end of a container
	upgrades := false     // its init container upgrade-ipam has not ended
	kept := &d.rules
	*kept = rules{kept.where[:0], kept.tolerates[:0], kept.others[:0]}
	d.object(r, &p.Meta, metaHooks{
		noWritten:  true,
		annotation: func(key, value []byte) { d.podAnnotation(r, p, key, value) },
		label: func(key, value []byte) {
			if string(key) == labelVM && p.Extras().VM == "" {
				p.Extend().VM = d.str(value)
			}
			if d.PodLabels || d.Dump {
				d.labels(&p.Labels)(key, value)
			}
		},
		owner: func(o ownerRef) {
			// KubeVirt may shorten the name in its label, so the owner reference takes
			// precedence.
			if o.is(kindVMI) && len(o.name) > 0 {
				p.Extend().VM = d.str(o.name)
			}
			if o.controller {
				p.Controller = d.Strings.controller(o)
			}
		},
	}, func(key []byte) {
		switch string(key) {
		case "nodeName":
			p.Node = d.text(r)
		case "hostNetwork":
			p.HostNetwork, _ = r.Boolean()
		default:
			kept.add(key, r)
		}
	}, func(key []byte) {
		switch string(key) {
		case "phase":
			p.Phase = d.text(r)
		case "podIP":
			podIP, _ = r.Bytes()
		case "podIPs":
			podIPs(r, p)
		case "startTime":
			p.Started = d.seenTime(r)
		case "conditions":
			r.AsOne(func() {
				d.conditions(r, func(kind, status, _ []byte, at blocks.Time) {
					switch string(kind) {
					case "Ready":
						p.Ready = p.Ready || string(status) == "True"
						ended = ended.Later(at)
					case "DisruptionTarget":
						ended = ended.Later(at)
					}
				})
			})
		case "initContainerStatuses":
			r.AsOne(func() {
				r.Array(func(int) {
					named, ready := false, false
					r.Object(func(key []byte) {
						switch string(key) {
						case "name":
							name, _ := r.Bytes()
							named = string(name) == blocks.UpgradeIPAM
						case "ready":
							ready, _ = r.Boolean()
						}
					})
					upgrades = upgrades || named && !ready
				})
			})
		case "containerStatuses":
			r.AsOne(func() {
				at := func(key []byte) {
					if string(key) == "terminated" {
						r.Fields(parse.Members{"finishedAt": func() { ended = ended.Later(d.seenTime(r)) }})
					}
				}
				r.Array(func(int) {
					r.Object(func(key []byte) {
						if string(key) == "state" {
							r.Object(at)
						}
					})
				})
			})
		}
	})
	if p.Namespace = d.inNamespace; p.Finished() && !ended.IsZero() {
		p.Extend().Ended = ended
	}
	if x := p.Extra; x != nil && len(x.AsksNetworks) > 0 {
		x.AsksNetworks = blocks.AskedNetworks(x.AsksNetworks[0], p.Namespace)
	}
	switch { // the pods of a DaemonSet share the remaining rules
	case p.CalicoNode():
	case p.HostNetwork:
		kept.tolerates = kept.tolerates[:0] // it needs no address
	case p.OfDaemonSet() && p.Node != "":
		kept.where = kept.where[:0] // it restarts on its node
	}
	kept.where = append(kept.where, kept.tolerates...)
	where, others := d.factsOf(r, kept.where), d.factsOf(r, kept.others)
	p.Labels, p.Placement, p.Scheduling = d.Strings.labels(p.Labels), where.Placement, others.Scheduling
	p.FelixOnly, p.HasScratch, p.RunsOnce = others.FelixOnly, others.HasScratch, others.RunsOnce
	if others.Env != nil && p.CalicoNode() {
		p.Extend().Env = others.Env
	}
	if upgrades && p.CalicoNode() {
		p.Extend().Upgrades = true
	}
	p.HasClaim = others.Claimed || others.HostBound && !p.OfDaemonSet() // on its own node, it finds its data again
	// status.podIP repeats the first of podIPs. Clusters older than dual-stack only have
	// status.podIP.
	if a, ok := blocks.ParseAddr(string(podIP)); ok && !slices.Contains(p.StatusIPs, a) {
		p.StatusIPs = append(p.StatusIPs, a)
	} else if !ok && len(podIP) > 0 {
		r.FaultAt("status.podIP", parse.NotA("address", podIP))
	}
	slices.SortFunc(p.AnnotationIPs, netip.Addr.Compare)
	p.StatusIPs, p.AnnotationIPs = slices.Clip(p.StatusIPs), slices.Clip(p.AnnotationIPs)
	if x := p.Extra; x != nil {
		slices.SortFunc(x.NetworkIPs, netip.Addr.Compare)
		slices.SortFunc(x.Attached, func(a, b blocks.AttachedAddress) int {
			return cmp.Or(cmp.Compare(a.Network, b.Network), a.Addr.Compare(b.Addr))
		})
		x.NetworkIPs, x.Attached = slices.Clip(x.NetworkIPs), slices.Clip(x.Attached)
	}
	if slices.Equal(p.StatusIPs, p.AnnotationIPs) {
		p.AnnotationIPs = p.StatusIPs
	}
	if p.Node != "" && p.Phase == "" && len(p.StatusIPs) == 0 && p.Started.IsZero() && !p.Ready {
		r.FaultAt("status", blocks.FieldMissing) // the API server sets the phase of each pod
	}
	if d.Dump && p.Node == "" && (p.Phase == "Running" || len(p.StatusIPs) > 0) {
		r.FaultAt("spec.nodeName", blocks.FieldMissing) // only a kubelet sets these
	}
	for _, f := range r.Faults {
		if p.Extras().Unreadable == "" && mayNameAddress(f.Field) {
			p.Extend().Unreadable = f.Field
		}
		if p.Extras().Partial == "" && !toleratedField(f.Field) {
			p.Extend().Partial = f.Field
		}
		if p.Extras().Rejected == "" && isRequest(f.Field) {
			p.Extend().Rejected = f.Field
		}
	}
	return d.whole(r, &p.Meta, anywhere)
}

func (d *Decoder) podAnnotation(r *parse.Reader, p *blocks.Workload, key, value []byte) {
	switch string(key) {
	case annotationPodIP:
		p.NetworkRemoved = len(value) == 0
		annotationIPs(r, p, value)
	case annotationPodIPs:
		annotationIPs(r, p, value)
	case annotationContainerID:
		p.ContainerID = string(value)
	case annotationPoolsV4:
		p.Extend().PoolsV4 = d.jsonList(r, value, "pools")
	case annotationPoolsV6:
		p.Extend().PoolsV6 = d.jsonList(r, value, "pools")
	case annotationAddresses:
		p.StaticAddress = len(value) > 0
		for _, one := range d.jsonList(r, value, "addresses") {
			addAddress(r, &p.Extend().StaticIPs, []byte(one))
		}
	case annotationFloating:
		_ = json.Unmarshal(value, &p.Extend().FloatingIPs) // no address of the pod's own depends on it
		p.Extra.FloatingIPs = slices.DeleteFunc(p.Extra.FloatingIPs, func(a netip.Addr) bool { return !a.IsValid() })
	case annotationNoIPAM:
		if len(value) > 0 {
			p.Extend().NoIPAM = true
		}
	case annotationSafeToEvict:
		p.NoEviction = p.NoEviction || string(value) == "false"
	case annotationPreventEviction:
		p.NoEviction = p.NoEviction || string(value) != "false"
	case annotationNetworks, annotationNetworksOld:
		d.networkStatus(r, p, value)
	case annotationAsks:
		p.Extend().AsksNetworks = []string{string(value)} // the namespace may follow
	}
}

// annotationIPs adds the addresses of an annotation: one such as "10.0.0.1/32", or several
// separated by commas. podIP and podIPs both contain the first address.
func annotationIPs(r *parse.Reader, p *blocks.Workload, value []byte) {
	for one := range bytes.SplitSeq(value, []byte(",")) {
		if one = bytes.TrimSpace(one); len(one) == 0 {
			continue
		}
		addAddress(r, &p.AnnotationIPs, one)
	}
}

// addAddress adds an address to a list that does not have it yet.
func addAddress(r *parse.Reader, to *[]netip.Addr, text []byte) {
	if a, ok := blocks.ParseAddr(string(text)); !ok {
		r.Fault(parse.NotA("address", text))
	} else if !slices.Contains(*to, a) {
		*to = append(*to, a)
	}
}

// podIPs decodes status.podIPs.
func podIPs(r *parse.Reader, p *blocks.Workload) {
	r.Array(func(int) {
		r.Object(func(key []byte) {
			if string(key) == "ip" {
				if value, _ := r.Bytes(); len(value) > 0 {
					addAddress(r, &p.StatusIPs, value)
				}
			}
		})
	})
}

// mayNameAddress reports whether an unparseable field of a pod may contain one of its
// addresses.
func mayNameAddress(field string) bool {
	switch field {
	case "status", "metadata.annotations":
		return true
	}
	return toleratedField(field) && !isRequest(field)
}

// isRequest reports whether a field requests pools or addresses. If it cannot be parsed, Calico
// assigns the pod no address (cni-plugin pkg/k8s/k8s.go, CmdAddK8s).
func isRequest(field string) bool {
	return slices.ContainsFunc([]string{annotationPoolsV4, annotationPoolsV6, annotationAddresses}, func(a string) bool { return field == annotationField(a) })
}

// toleratedField reports whether verdicts stay safe although a field of a pod cannot be parsed
// ([blocks.Gap.Tolerated]). [blocks.Extras.Unreadable] accounts for fields with addresses. A pod
// with an unparseable request gets no address, and a running pod keeps its own, so no address
// depends on the request. Except for the status, the pod's author writes all of these fields, and
// could otherwise make the audit of a whole cluster incomplete.
func toleratedField(field string) bool {
	if strings.HasPrefix(field, "status.podIP") {
		return true
	}
	switch key, _ := strings.CutPrefix(field, "metadata.annotations"); key {
	case "[" + annotationPodIP + "]", "[" + annotationPodIPs + "]", "[" + annotationNetworks + "]", "[" + annotationNetworksOld + "]":
		return true
	}
	return isRequest(field)
}

// factsOf returns what rules mean. Pods with equal rules share it.
func (d *Decoder) factsOf(r *parse.Reader, text []byte) *podspec.Facts {
	x := shared(d.Strings, &d.Strings.facts, text, func() *podspec.Facts { return podspec.Parse(text) })
	if x.Fault != "" {
		r.FaultAt(x.Fault, x.Reason)
	}
	return x
}
