package statedsl

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/blocks/decode"
)

// Manifest returns the objects of a state as kubectl prints them in JSON. A cluster or
// files with these objects are in that state. Gaps and host views are omitted because
// they are not objects; so are virtual machines and budgets. [HasObjectsOnly] reports
// whether the manifest is complete. Invalid names are replaced by valid ones.
func Manifest(s *blocks.Snapshot) []map[string]any {
	m := &manifest{}
	for i := range s.Pools {
		m.pool(&s.Pools[i])
	}
	for i := range s.Nodes {
		m.node(&s.Nodes[i])
	}
	for i := range s.Namespaces {
		n := &s.Namespaces[i]
		meta := metadata(n.Meta)
		meta["labels"], meta["annotations"] = n.Labels, poolAnnotations(n.PoolsV4, n.PoolsV6)
		m.add("v1", "Namespace", meta, nil, nil)
	}
	// Files without the namespaces of their pods do not show which pods a pool's selector matches.
	exists := map[string]bool{}
	for i := range s.Namespaces {
		exists[s.Namespaces[i].Name] = true
	}
	for _, name := range append([]string{"kube-system"}, namespacesOf(s.Workloads)...) {
		if !exists[name] {
			exists[name] = true
			m.add("v1", "Namespace", map[string]any{"name": name, "uid": "uid-" + name}, nil, nil)
		}
	}
	for i := range s.Workloads {
		m.pod(s.Workloads[i])
	}
	if len(s.Workloads) == 0 { // files without any pod count as incomplete
		proxy := &blocks.Workload{Meta: blocks.Meta{Name: "kube-proxy", Pin: blocks.PinOf("uid-kube-proxy", "1"), Created: blocks.TimeOf(s.Cluster.TakenAt)}, Namespace: "kube-system", HostNetwork: true, Phase: "Pending"}
		if len(s.Nodes) > 0 {
			proxy.Node, proxy.Phase = s.Nodes[0].Name, "Running"
		}
		m.pod(proxy)
	}
	for i := range s.Blocks {
		m.block(&s.Blocks[i])
	}
	for i := range s.Affinities {
		m.affinity(&s.Affinities[i])
	}
	for _, h := range s.Handles {
		counts := map[string]any{}
		for _, c := range h.Blocks {
			counts[c.CIDR.String()] = c.Count
		}
		m.calico("IPAMHandle", metadata(h.Meta), map[string]any{"handleID": h.ID, "block": counts, "deleted": h.SoftDeleted})
	}
	for i := range s.Reservations {
		r := &s.Reservations[i]
		meta := metadata(r.Meta)
		if r.Ours != "" {
			meta["annotations"] = map[string]any{blocks.OursAnnotation: r.Ours}
		}
		m.calico("IPReservation", meta, map[string]any{"reservedCIDRs": texts(r.CIDRs)})
	}
	m.configs(s)
	for i := range s.BGPPeers {
		m.peer(&s.BGPPeers[i])
	}
	for i := range s.BGPFilters {
		f := &s.BGPFilters[i]
		m.calico("BGPFilter", metadata(f.Meta), map[string]any{
			"exportV4": rules(f.ExportV4), "importV4": rules(f.ImportV4), "exportV6": rules(f.ExportV6), "importV6": rules(f.ImportV6),
		})
	}
	for i := range s.Migrations {
		m.add("migration.projectcalico.org/v1beta1", "DatastoreMigration", metadata(s.Migrations[i].Meta), nil, map[string]any{"phase": s.Migrations[i].Phase})
	}
	m.whereabouts(s)
	for _, e := range s.SandboxEvents {
		meta := metadata(e.Meta)
		meta["namespace"] = e.Namespace
		m.objects = append(m.objects, map[string]any{
			"apiVersion": "v1", "kind": "Event", "metadata": meta, "reason": blocks.SandboxFailed, "message": e.Message, "lastTimestamp": at(e.Seen),
			"involvedObject": map[string]any{"kind": "Pod", "namespace": e.Namespace, "name": e.Pod},
		})
	}
	return m.objects
}

// Lists adds an empty List of each kind without objects, as "kubectl get --raw" prints
// it. Then the files show every kind except virtual machines.
func Lists(objects []map[string]any) []map[string]any {
	have := map[string]bool{}
	for _, o := range objects {
		have[fmt.Sprint(o["apiVersion"], "/", o["kind"])] = true
	}
	for _, k := range decode.Kinds {
		if slices.Contains(blocks.VMKinds, k.Resource) {
			continue // the fixture decides whether virtual machines count as read, since that changes who owns addresses
		}
		if version := k.Version(decode.GroupCRD); !have[version+"/"+k.Names[0]] {
			objects = append(objects, map[string]any{"apiVersion": version, "kind": k.Names[0] + "List", "items": []any{}})
		}
	}
	return objects
}

// HasObjectsOnly reports whether the manifest contains the whole state.
func HasObjectsOnly(s *blocks.Snapshot) bool {
	return len(s.Gaps) == 0 && !s.Hosts.Asked && !s.VMsKnown && !s.BudgetsKnown && s.Cluster.OtherGroup == "" && !s.Cluster.APIServer.IsValid() && len(s.Services) == 0
}

func (m *manifest) pool(p *blocks.Pool) {
	mode, uses := "Automatic", []string{}
	if !p.Automatic {
		mode = "Manual"
	}
	for _, u := range p.Uses {
		uses = append(uses, string(u))
	}
	spec := map[string]any{
		"cidr": p.CIDR.String(), "blockSize": p.BlockSize, "disabled": p.Disabled, "allowedUses": uses, "assignmentMode": mode,
		"natOutgoing": p.NATOutgoing, "disableBGPExport": p.DisableBGPExport,
	}
	if p.Unmasked.IsValid() {
		spec["cidr"] = p.Unmasked.String()
	}
	set(spec, "nodeSelector", p.NodeSelector)
	set(spec, "namespaceSelector", p.NamespaceSelector)
	set(spec, "ipipMode", string(p.IPIP))
	set(spec, "vxlanMode", string(p.VXLAN))
	var status map[string]any
	if p.NotAllocatable != "" {
		status = map[string]any{"conditions": []any{map[string]any{"type": "Allocatable", "status": "False", "reason": p.NotAllocatable}}}
	}
	meta := metadata(p.Meta)
	if p.OfOperator {
		meta["labels"] = map[string]any{blocks.ManagedBy: blocks.TigeraOperator}
	}
	m.add("crd.projectcalico.org/v1", "IPPool", meta, spec, status)
}

var tunnelAnnotations = map[string]string{
	blocks.TypeIPIP: "IPv4IPIPTunnelAddr", blocks.TypeVXLAN: "IPv4VXLANTunnelAddr", blocks.TypeVXLANv6: "IPv6VXLANTunnelAddr",
	blocks.TypeWireguard: "IPv4WireguardInterfaceAddr", blocks.TypeWireguardV6: "IPv6WireguardInterfaceAddr",
}

func namespacesOf(pods []*blocks.Workload) (out []string) {
	for _, w := range pods {
		out = append(out, w.Namespace)
	}
	return out
}

func (m *manifest) node(n *blocks.Node) {
	annotations := map[string]any{}
	for _, t := range n.Tunnels {
		annotations["projectcalico.org/"+tunnelAnnotations[t.Type]] = t.Addr.String()
	}
	for _, t := range n.Wireguard {
		annotations[map[string]string{blocks.TypeWireguard: "projectcalico.org/WireguardPublicKey", blocks.TypeWireguardV6: "projectcalico.org/WireguardPublicKeyV6"}[t]] = "jlkVyQYooZYzI2wFfNhSZez5eWh44yfq1wKVjLvSXgY="
	}
	if n.Flannel {
		annotations["flannel.alpha.coreos.com/backend-type"] = "vxlan"
	}
	if n.FlannelIP.IsValid() {
		annotations["flannel.alpha.coreos.com/public-ip"] = n.FlannelIP.String()
	}
	for _, a := range n.Addresses {
		family := "IPv6"
		if a.Addr().Is4() {
			family = "IPv4"
		}
		annotations["projectcalico.org/"+family+"Address"] = a.String()
	}
	if n.ASNumber != 0 {
		annotations["projectcalico.org/ASNumber"] = fmt.Sprint(n.ASNumber)
	}
	set(annotations, "projectcalico.org/RouteReflectorClusterID", n.RouteReflectorID)
	set(annotations, blocks.OursAnnotation, n.Ours)
	system, ready := "linux", "True"
	if n.Windows {
		system = "windows"
	}
	if n.NotReady {
		ready = "False"
	}
	taints := []any{}
	for _, t := range n.Taints {
		taints = append(taints, map[string]any{"key": t.Key, "value": t.Value, "effect": t.Effect})
	}
	if n.OutOfService && len(taints) == 0 {
		taints = append(taints, map[string]any{"key": blocks.TaintOutOfService, "effect": "NoExecute"})
	}
	status := map[string]any{
		"conditions": []any{map[string]any{"type": "Ready", "status": ready}},
		"nodeInfo":   map[string]any{"operatingSystem": system},
	}
	addresses := []any{}
	for _, a := range n.InternalIPs {
		addresses = append(addresses, map[string]any{"type": "InternalIP", "address": a.String()})
	}
	status["addresses"] = addresses
	allocatable := map[string]any{}
	for name, q := range n.Allocatable {
		allocatable[name] = resource.NewMilliQuantity(q, resource.DecimalSI).String()
	}
	status["allocatable"] = allocatable
	meta := metadata(n.Meta)
	meta["labels"], meta["annotations"] = n.Labels, annotations
	spec := map[string]any{"unschedulable": n.Unschedulable, "taints": taints}
	if len(n.PodCIDRs) > 0 {
		spec["podCIDR"], spec["podCIDRs"] = n.PodCIDRs[0].String(), texts(n.PodCIDRs)
	}
	m.add("v1", "Node", meta, spec, status)
}

func poolAnnotations(v4, v6 []string) map[string]any {
	out := map[string]any{}
	for key, names := range map[string][]string{"ipv4pools": v4, "ipv6pools": v6} {
		if names != nil {
			out["cni.projectcalico.org/"+key] = asJSON(names)
		}
	}
	return out
}

func (m *manifest) pod(p *blocks.Workload) {
	e := p.Extras()
	annotations := poolAnnotations(e.PoolsV4, e.PoolsV6)
	if len(p.AnnotationIPs) > 0 {
		annotations["cni.projectcalico.org/podIPs"] = joined(p.AnnotationIPs)
	}
	if p.NetworkRemoved {
		annotations["cni.projectcalico.org/podIP"] = ""
	}
	networks := []any{}
	for _, a := range e.Attached {
		networks = append(networks, map[string]any{"name": a.Network, "ips": []string{a.Addr.String()}})
	}
	if len(e.NetworkIPs) > len(e.Attached) {
		networks = append(networks, map[string]any{"name": "net", "ips": texts(e.NetworkIPs)})
	}
	if len(networks) > 0 || p.Extras().NetworkStatus {
		annotations["k8s.v1.cni.cncf.io/network-status"] = asJSON(networks)
	}
	set(annotations, "k8s.v1.cni.cncf.io/networks", strings.Join(e.AsksNetworks, ","))
	if e.Unreadable != "" {
		annotations["cni.projectcalico.org/podIPs"] = "unreadable"
	}
	set(annotations, "cni.projectcalico.org/containerID", p.ContainerID)
	if p.StaticAddress {
		annotations["cni.projectcalico.org/ipAddrs"] = asJSON(texts(e.StaticIPs))
	}
	if len(e.FloatingIPs) > 0 {
		annotations["cni.projectcalico.org/floatingIPs"] = asJSON(texts(e.FloatingIPs))
	}
	if e.Rejected != "" {
		annotations[strings.TrimSuffix(strings.TrimPrefix(e.Rejected, "metadata.annotations["), "]")] = "unreadable"
	}
	if e.NoIPAM {
		annotations["cni.projectcalico.org/ipAddrsNoIpam"] = fmt.Sprintf("[%q]", joined(p.StatusIPs))
	}
	if p.NoEviction {
		annotations["cluster-autoscaler.kubernetes.io/safe-to-evict"] = "false"
	}
	labels := map[string]any{}
	for k, v := range p.Labels {
		labels[k] = v
	}
	set(labels, "vm.kubevirt.io/name", p.Extras().VM)
	meta := metadata(p.Meta)
	meta["namespace"], meta["annotations"], meta["labels"] = p.Namespace, annotations, labels
	if c := p.Controller; c != nil {
		meta["ownerReferences"] = []any{map[string]any{"apiVersion": "apps/v1", "kind": c.Kind, "name": c.Name, "uid": c.UID, "controller": true}}
	}
	spec := map[string]any{"hostNetwork": p.HostNetwork}
	set(spec, "nodeName", p.Node)
	if p.Scheduling != nil {
		spec["schedulerName"] = "default-scheduler"
	}
	main := map[string]any{"name": "main", "image": "registry.example.org/app:1"}
	if p.FelixOnly {
		main = map[string]any{"name": "calico-node", "readinessProbe": map[string]any{"exec": map[string]any{"command": []any{"/bin/calico-node", "-felix-ready"}}}}
	}
	env := []any{}
	for _, name := range slices.Sorted(maps.Keys(e.Env)) {
		env = append(env, map[string]any{"name": name, "value": e.Env[name]})
	}
	if len(env) > 0 {
		main["env"] = env
	}
	spec["containers"] = []any{main}
	if p.RunsOnce {
		spec["restartPolicy"] = "Never"
	}
	if p.Placement != nil {
		if key, value, ok := strings.Cut(strings.TrimSuffix(p.Placement.String(), ")"), " in ("); ok {
			spec["nodeSelector"] = map[string]any{key: value}
		}
		tolerations := []any{}
		for _, t := range p.Placement.Tolerates {
			tolerations = append(tolerations, map[string]any{"key": t.Key, "operator": t.Operator, "value": t.Value, "effect": t.Effect})
		}
		spec["tolerations"] = tolerations
	}
	volumes := []any{}
	if p.HasClaim {
		volumes = append(volumes, map[string]any{"name": "data", "persistentVolumeClaim": map[string]any{"claimName": p.Name}})
	}
	if p.HasScratch {
		volumes = append(volumes, map[string]any{"name": "scratch", "emptyDir": map[string]any{}})
	}
	if len(volumes) > 0 {
		spec["volumes"] = volumes
	}
	status := map[string]any{"phase": p.Phase}
	if e.Upgrades {
		status["initContainerStatuses"] = []any{map[string]any{"name": blocks.UpgradeIPAM, "ready": false}}
	}
	if p.Ready {
		status["conditions"] = []any{map[string]any{"type": "Ready", "status": "True"}}
	}
	if ended := p.Extras().Ended; !ended.IsZero() {
		terminated := map[string]any{"exitCode": 0, "finishedAt": at(ended)}
		status["containerStatuses"] = []any{map[string]any{"name": "main", "state": map[string]any{"terminated": terminated}}}
	}
	if len(p.StatusIPs) > 0 {
		ips := []any{}
		for _, a := range p.StatusIPs {
			ips = append(ips, map[string]any{"ip": a.String()})
		}
		status["podIP"], status["podIPs"] = p.StatusIPs[0].String(), ips
	}
	m.add("v1", "Pod", meta, spec, status)
}

func (m *manifest) block(b *blocks.Block) {
	allocations, attributes, sequences := []any{}, []any{}, map[string]any{}
	for _, index := range b.Ordinals {
		if index == blocks.Free {
			allocations = append(allocations, nil)
		} else {
			allocations = append(allocations, index)
		}
	}
	for i := range b.Attributes {
		attributes = append(attributes, attribute(&b.Attributes[i]))
	}
	for _, s := range b.OrdinalSequences {
		sequences[fmt.Sprint(s.Ordinal)] = s.Sequence
	}
	unallocated := b.Unallocated
	if unallocated == nil {
		unallocated = []int32{}
	}
	spec := map[string]any{
		"cidr": b.CIDR.String(), "allocations": allocations, "unallocated": unallocated, "attributes": attributes,
		"sequenceNumber": b.Sequence, "sequenceNumberForAllocation": sequences, "deleted": b.SoftDeleted, "strictAffinity": b.DeprecatedStrict,
	}
	set(spec, "affinity", b.Owner.Affinity())
	if !b.Claimed.IsZero() {
		spec["affinityClaimTime"] = at(b.Claimed)
	}
	m.calico("IPAMBlock", metadata(b.Meta), spec)
}

func attribute(a *blocks.Attributes) map[string]any {
	out := map[string]any{}
	if a.HasHandle {
		out["handle_id"] = a.Handle
	}
	if !a.Extras().Released.IsZero() {
		out["releasedAt"] = at(a.Extras().Released)
	}
	secondary := ownerMap(a)
	set(secondary, "type", a.Extras().Type)
	set(secondary, "service", a.Extras().Service)
	if !a.Assigned.IsZero() {
		secondary["timestamp"] = a.Assigned.Std().String()
	}
	out["secondary"] = secondary
	if alt := a.Extras().Alternate; alt != nil {
		out["alternateOwnerAttrs"] = ownerMap(alt)
	}
	return out
}

func ownerMap(a *blocks.Attributes) map[string]any {
	out := map[string]any{}
	set(out, "pod", a.Pod)
	set(out, "namespace", a.Namespace)
	set(out, "node", a.Node)
	set(out, "vmi-name", a.Extras().VMI)
	if a.VM && a.Extras().VMI == "" {
		out["vmi-uid"] = "uid"
	}
	return out
}

func (m *manifest) affinity(a *blocks.Affinity) {
	meta := metadata(a.Meta)
	if !a.Unlabelled {
		meta["labels"] = map[string]any{"projectcalico.org/hostname-hash": "hash"}
	}
	m.calico("BlockAffinity", meta, map[string]any{
		"cidr": a.CIDR.String(), "node": a.Owner.Name, "type": string(a.Owner.Kind), "state": string(a.State), "deleted": fmt.Sprint(a.SoftDeleted),
	})
}

func (m *manifest) configs(s *blocks.Snapshot) {
	named := map[string]any{"name": "default"}
	for _, c := range append(slices.Clip(s.IgnoredIPAM), s.IPAM) {
		if c.Present {
			m.calico("IPAMConfig", metadata(c.Meta), map[string]any{
				"strictAffinity": c.StrictAffinity, "autoAllocateBlocks": c.AutoAllocateBlocks, "maxBlocksPerHost": c.MaxBlocksPerHost,
				"ipCooldownSeconds": int(c.Cooldown.Seconds()),
			})
		}
	}
	m.calico("ClusterInformation", named, map[string]any{
		"clusterGUID": s.Cluster.GUID, "calicoVersion": s.Cluster.CalicoVersion, "datastoreReady": !s.Info.Locked,
	})
	if c := &s.Controllers; c.Present {
		controllers := map[string]any{}
		if c.NodeController {
			node := map[string]any{}
			if c.LeakGraceSet {
				node["leakGracePeriod"] = c.LeakGrace.String()
			}
			controllers["node"] = node
		}
		if c.LoadBalancer {
			controllers["loadBalancer"] = map[string]any{"assignIPs": "AllServices"}
		}
		var status map[string]any
		if c.Reported {
			running := map[string]any{"node": map[string]any{}}
			if c.LoadBalancerRuns {
				running["loadBalancer"] = map[string]any{"assignIPs": "AllServices"}
			}
			status = map[string]any{"runningConfig": map[string]any{"controllers": running}}
		}
		m.add("crd.projectcalico.org/v1", "KubeControllersConfiguration", named, map[string]any{"controllers": controllers}, status)
	}
	if c := &s.Felix; c.Present {
		spec := map[string]any{"bpfEnabled": c.BPFEnabled}
		for key, on := range map[string]*bool{"vxlanEnabled": c.VXLANEnabled, "ipipEnabled": c.IPIPEnabled} {
			if on != nil {
				spec[key] = *on
			}
		}
		set(spec, "programClusterRoutes", c.ProgramClusterRoutes)
		set(spec, "routeSource", c.RouteSource)
		set(spec, "floatingIPs", c.FloatingIPs)
		if c.VXLANPort != 0 {
			spec["vxlanPort"] = c.VXLANPort
		}
		if c.VXLANVNI != 0 {
			spec["vxlanVNI"] = c.VXLANVNI
		}
		m.calico("FelixConfiguration", named, spec)
	}
	if c := &s.BGP; c.Present {
		m.calico("BGPConfiguration", named, map[string]any{"nodeToNodeMeshEnabled": c.Mesh, "asNumber": c.ASNumber})
	}
}
