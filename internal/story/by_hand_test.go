package story

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/bits"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	apiv3 "github.com/projectcalico/api/pkg/apis/projectcalico/v3"
	libapi "github.com/projectcalico/calico/libcalico-go/lib/apis/v3"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/audit/remedies"
	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/internal/testcluster"
	"github.com/calico-audit/calico-audit/internal/testcluster/seeding"
)

// person follows the advice of a report on one finding by hand, to the letter, with an
// operator's tools. It also plays the kubelet and calico-node.
type person struct {
	*testing.T
	*testcluster.Cluster
	seeder  *seeding.Seeder
	report  *audit.Report
	finding *audit.Finding
	advice  *remedies.Remedy
}

// practice maps each text of advice to the actions that follow it. The expressions match
// whole texts.
var practice = []struct {
	words  *regexp.Regexp
	follow func(p *person, said []string)
}{
	{says(`add a pool like (\S+) for at least (\d+) blocks, with a CIDR that nothing else uses(?:; and add its name to (.+) where pods or their namespaces ask for that .*)?`), (*person).addPool},
	{says(`add a pool for Services \(allowedUses: \[LoadBalancer\]\), like (\S+), with a CIDR that nothing else uses`), func(p *person, said []string) {
		p.poolLike(said[1], said[1]+"-more", 4, nil)
	}},
	{says(`add a pool with another CIDR and the wanted block size, then set disabled: true on this pool \(with Tigera's operator disableNewAllocations: true in the Installation, calicoNetwork\.ipPools\) and restart its pods, one controller at a time`), (*person).replacePool},
	{says(`add a pool outside the networks of nodes and Services, set disabled: true on this pool \(with Tigera's operator disableNewAllocations: true in the Installation, calicoNetwork\.ipPools\), and restart its pods`), (*person).replacePool},
	{says(`let an enabled pool for workloads select the node, or add one that does( \(.*\))?`), (*person).servePods},
	{says(`let a pool serve the pod: change the request of the pod or its namespace, or a pool's namespace selector`), (*person).servePods},
	{says(`correct the pool's selector(?: \(with Tigera's operator [^)]*\))?(?:: pool (\S+): .*)?(?:, or disable the pool until it is corrected)?`), (*person).correctSelector},
	{says(`set disabled: true on one of the two pools, but not on one of Tigera's operator, restart the pods that use it, and when no pod does, delete it without Calico's API server: kubectl delete (ippools\.crd\.projectcalico\.org) NAME \(ippools\.projectcalico\.org only where Calico's CRDs are of that group\)`), (*person).endOverlap},
	{says(`check first that the pool has a block left for the node, and save a snapshot. Reserve the block's CIDR with an IPReservation, and restart the pods that use its addresses, one controller at a time. Once no pod uses them, delete the block's BlockAffinity, its IPAMBlock and the reservation`), (*person).endCorruptBlock},
	{says(`restart these pods by hand, each only if another node can take it, because plans must not evict them: (.*)`), func(p *person, said []string) { p.restart(listed(said[1])...) }},
	{says(`if the block is needed, restart the pods that use its addresses`), func(p *person, _ []string) { p.restart(p.usersOf(p.finding.Subject.CIDR)...) }},
	{says(`create the pool again with disabled: true, restart its pods, then delete the pool with calicoctl`), (*person).endPool},
	{says(`start a pod on the node: Calico then confirms the affinity`), func(p *person, _ []string) { p.newPod(p.finding.Subject.Node) }},
	{says(`restart pod (\S+)`), func(p *person, said []string) { p.restart(said[1]) }},
	{says(`restart the pod that the allocation does not name; if a network namespace without a pod has the address, stop its processes`), (*person).endDuplicate},
	{says(`once (\S+) has a block, take the tunnel's address off the node, and restart its calico-node pod if no new one appears within a minute`), (*person).renewTunnel},
	{says(`raise maxBlocksPerHost, or run fewer pods on the node; check first that its blocks hold no leaked addresses`), func(p *person, _ []string) {
		p.config("ipamconfigs", func(spec map[string]any) {
			limit, _ := spec["maxBlocksPerHost"].(int64)
			spec["maxBlocksPerHost"] = max(limit, 20) * 2
		})
	}},
	{says(`set nodeToNodeMeshEnabled: true in the BGPConfiguration, or add BGPPeers that select the nodes, such as to route reflectors`), func(p *person, _ []string) {
		p.config("bgpconfigurations", func(spec map[string]any) { spec["nodeToNodeMeshEnabled"] = true })
	}},
	{says(`set disableBGPExport: false on the pool \(with Tigera's operator in the Installation, calicoNetwork\.ipPools\), or let VXLAN carry its traffic \(vxlanMode: Always\)`), func(p *person, _ []string) {
		p.editPool(p.finding.Subject.Name, func(spec map[string]any) { spec["disableBGPExport"] = false })
	}},
	{says(`start one of them again, or let the BGPPeers peer the nodes with further route reflectors; until then, nodeToNodeMeshEnabled: true in the BGPConfiguration carries the routes`), func(p *person, _ []string) {
		p.config("bgpconfigurations", func(spec map[string]any) { spec["nodeToNodeMeshEnabled"] = true })
	}},
	{says(`give each route reflector a cluster ID of its own and let a BGPPeer peer the reflectors with each other, or let the BGPPeers peer each node with every reflector`), (*person).joinReflectors},
	{says(`turn autoAllocateBlocks on in the IPAM configuration`), func(p *person, _ []string) {
		p.config("ipamconfigs", func(spec map[string]any) { spec["autoAllocateBlocks"] = true })
	}},
	{says(`set controllers\.node\.leakGracePeriod in the KubeControllersConfiguration, for example to (\S+)`), func(p *person, said []string) {
		p.config("kubecontrollersconfigurations", func(spec map[string]any) {
			spec["controllers"] = map[string]any{"node": map[string]any{"leakGracePeriod": said[1]}}
		})
	}},
	{says(`create an IPReservation for (.+), the blocks? around the address(?:es)?(?:, then restart pod (\S+))?`), func(p *person, said []string) {
		var cidrs []any
		for _, cidr := range listed(said[1]) {
			cidrs = append(cidrs, cidr)
		}
		must(p.T, p.Create(p.Context(), calico("ipreservations"), map[string]any{"metadata": map[string]any{"name": "around"}, "spec": map[string]any{"reservedCIDRs": cidrs}}))
		if said[2] != "" {
			p.restart(said[2])
		}
	}},
	{says(`let an enabled pool of the same encapsulation that allows tunnels select the nodes: enable the pool until its pods use another, add Tunnel to its allowedUses, or add a small pool with allowedUses: \[Tunnel\]`), func(p *person, _ []string) {
		p.editPool(p.finding.Subject.Name, func(spec map[string]any) {
			spec["allowedUses"] = []any{"Workload", "Tunnel"}
			delete(spec, "nodeSelector")
			delete(spec, "disabled")
		})
	}},
	{says(`remove (.+) from the environment of the DaemonSet calico-node \(of its source, such as the chart or kubespray, too\), so that the FelixConfiguration applies; or change its value there`), func(p *person, said []string) {
		for _, pod := range p.pods() {
			c := &pod.Spec.Containers[0]
			had := len(c.Env)
			if c.Env = slices.DeleteFunc(c.Env, func(v corev1.EnvVar) bool { return slices.Contains(listed(said[1]), v.Name) }); len(c.Env) < had {
				p.end(pod.Namespace, pod.Name)
				pod.ObjectMeta = metav1.ObjectMeta{Name: pod.Name, Namespace: pod.Namespace, OwnerReferences: pod.OwnerReferences}
				_, err := p.Kube.CoreV1().Pods(pod.Namespace).Create(p.Context(), &pod, metav1.CreateOptions{})
				must(p.T, err)
			}
		}
	}},
	{says(`remove (\S+) from the FelixConfiguration, or set it to true`), func(p *person, said []string) {
		p.config("felixconfigurations", func(spec map[string]any) { delete(spec, said[1]) })
	}},
	{says(`let the kubelets of (.+) report addresses that only their machines have \(--node-ip\), .*`), func(p *person, said []string) {
		for _, node := range listed(said[1]) {
			p.calicoNode(node)
		}
	}},
	{says(`let the kubelet of (.+) report the address of its own machine \(--node-ip\)`), func(p *person, said []string) {
		for _, node := range listed(said[1]) {
			p.calicoNode(node)
		}
	}},
	{says(`write the network into the pool's spec\.cidr \(kubectl edit of the CRD's object\)`), func(p *person, _ []string) {
		p.editPool(p.finding.Subject.Name, func(spec map[string]any) { spec["cidr"] = p.finding.Subject.CIDR })
	}},
	{says(`change the settings in the object named default if they are wanted, then delete the ignored object`), func(p *person, _ []string) {
		must(p.T, p.Delete(p.Context(), calico("ipamconfigs"), "", p.finding.Subject.Name))
	}},
	{says(`add controllers\.loadBalancer to the KubeControllersConfiguration, with assignIPs: (\S+) or AllServices`), func(p *person, said []string) {
		p.config("kubecontrollersconfigurations", func(spec map[string]any) {
			spec["controllers"].(map[string]any)["loadBalancer"] = map[string]any{"assignIPs": said[1]}
		})
	}},
	{says(`add loadbalancer to the environment variable ENABLED_CONTROLLERS of calico-kube-controllers, which overrides the KubeControllersConfiguration`), func(p *person, _ []string) {
		must(p.T, p.Edit(p.Context(), calico("kubecontrollersconfigurations"), "", "default", func(object map[string]any) {
			object["status"] = map[string]any{"runningConfig": map[string]any{"controllers": map[string]any{"node": map[string]any{}, "loadBalancer": map[string]any{}}}}
		}))
	}},
	{says(`unlock the datastore, if no migration is in progress: calicoctl (.*)`), func(p *person, said []string) {
		_, err := p.Calicoctl(p.Context(), strings.Fields(said[1])...)
		must(p.T, err)
	}},
	{says(`read the log of the init container upgrade-ipam; if it fails on records that an earlier installation left, delete /var/lib/cni/networks/k8s-pod-network on that node, then restart its calico-node pod`), func(p *person, _ []string) {
		for _, pod := range p.pods() {
			if len(pod.Status.InitContainerStatuses) > 0 {
				p.end(pod.Namespace, pod.Name)
			}
		}
		_, err := p.Calicoctl(p.Context(), "datastore", "migrate", "unlock") // as upgrade-ipam does
		must(p.T, err)
	}},
	{says(`if Calico should serve the pods: delete DaemonSet (\S+)/(\S+), .+, and its configuration in /etc/cni/net\.d of each node \(or replace the nodes\), then restart its pods`), func(p *person, said []string) {
		for _, pod := range p.pods() {
			if o := pod.OwnerReferences; pod.Namespace == said[1] && len(o) > 0 && o[0].Name == said[2] {
				p.end(pod.Namespace, pod.Name)
			}
		}
		p.restart(p.usersOf("10.0.0.0/16")...) // outside the fixture's pools
	}},
	{says(`give calico-node the address of its machine \(IP from status\.hostIP in its DaemonSet\), or install a newer Calico and restart calico-node`), func(p *person, _ []string) {
		p.calicoNode(p.finding.Subject.Name)
	}},
	{says(`install Calico v3\.28\.3, v3\.29\.1 or newer, or until then set vxlanMode: Always on the pool .*`), func(p *person, _ []string) {
		p.editPool(p.finding.Subject.Name, func(spec map[string]any) { spec["vxlanMode"] = "Always" })
	}},
	{says(`run a controller that assigns addresses to Services: .*`), func(p *person, _ []string) {
		all, err := p.Kube.CoreV1().Services("").List(p.Context(), metav1.ListOptions{})
		must(p.T, err)
		for _, s := range all.Items { // as the controller does
			if s.Spec.LoadBalancerIP != "" {
				patch := `{"status":{"loadBalancer":{"ingress":[{"ip":"` + s.Spec.LoadBalancerIP + `"}]}}}`
				_, err := p.Kube.CoreV1().Services(s.Namespace).Patch(p.Context(), s.Name, types.MergePatchType, []byte(patch), metav1.PatchOptions{}, "status")
				must(p.T, err)
			}
		}
	}},
	{says(`list a range of several addresses in serviceLoadBalancerIPs of the BGPConfiguration, or install Calico v3\.32`), func(p *person, _ []string) {
		p.config("bgpconfigurations", func(spec map[string]any) {
			spec["serviceLoadBalancerIPs"] = []any{map[string]any{"cidr": "203.0.113.0/28"}}
		})
	}},
	{says(`delete the finished pods(?: on (\S+))?, and let Jobs delete theirs .*`), func(p *person, said []string) {
		for _, pod := range p.pods() {
			if done := pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed; done && (said[1] == "" || pod.Spec.NodeName == said[1]) {
				p.end(pod.Namespace, pod.Name)
			}
		}
	}},
	{says(`set controllers\.node\.leakGracePeriod to 0 in the KubeControllersConfiguration`), func(p *person, _ []string) {
		p.config("kubecontrollersconfigurations", func(spec map[string]any) {
			spec["controllers"] = map[string]any{"node": map[string]any{"leakGracePeriod": "0s"}}
		})
	}},
	{says(`correct the name \S+ in /var/lib/calico/nodename on (.+), in the CNI configuration there \(nodename\), or in NODENAME of calico-node; then restart calico-node there, and then the pods`), func(p *person, said []string) {
		for _, node := range listed(said[1]) {
			p.calicoNode(node)
			for _, pod := range p.pods() {
				if pod.Spec.NodeName == node && !pod.Spec.HostNetwork {
					p.restart(pod.Namespace + "/" + pod.Name)
				}
			}
		}
	}},
	{says(`delete the Node whose machine no longer exists; if both exist, give one another address and restart calico-node there`), func(p *person, _ []string) {
		p.calicoNode(p.finding.Subject.Node)
	}},
	{says(`let calico-node detect an address that only its machine has \(.*\)`), func(p *person, _ []string) {
		nodes, err := p.Kube.CoreV1().Nodes().List(p.Context(), metav1.ListOptions{})
		must(p.T, err)
		for i := range nodes.Items {
			p.calicoNode(nodes.Items[i].Name)
		}
	}},
	{says(`give the machines an (\S+) address, and let calico-node detect it \(.*\)`), func(p *person, said []string) {
		nodes, err := p.Kube.CoreV1().Nodes().List(p.Context(), metav1.ListOptions{})
		must(p.T, err)
		for i := range nodes.Items {
			key, address := "projectcalico.org/"+said[1]+"Address", fmt.Sprintf("192.0.2.%d/24", 200+i)
			if said[1] == "IPv6" {
				address = fmt.Sprintf("2001:db8:ffff::%d/64", 1+i)
			}
			if nodes.Items[i].Annotations[key] == "" {
				_, err = p.Kube.CoreV1().Nodes().Patch(p.Context(), nodes.Items[i].Name, types.MergePatchType, []byte(`{"metadata":{"annotations":{"`+key+`":"`+address+`"}}}`), metav1.PatchOptions{})
				must(p.T, err)
			}
		}
	}},
	{says(`restart calico-node on the node, which then records its current address; if it refuses .*`), func(p *person, _ []string) {
		p.calicoNode(p.finding.Subject.Node)
	}},
	{says(`restart calico-node on (.+): when it starts, it takes a tunnel address that a block records(?:; then .*)?`), func(p *person, said []string) {
		for _, node := range listed(said[1]) {
			n, err := p.Kube.CoreV1().Nodes().Get(p.Context(), node, metav1.GetOptions{})
			must(p.T, err)
			kinds := []seeding.Tunnel{seeding.IPIP, seeding.VXLAN}
			for key, kind := range map[string]seeding.Tunnel{"WireguardPublicKey": seeding.WireGuard, "WireguardPublicKeyV6": seeding.WireGuardV6} {
				if n.Annotations["projectcalico.org/"+key] != "" {
					kinds = append(kinds, kind)
				}
			}
			for _, kind := range kinds {
				_, err := p.seeder.Tunnel(p.Context(), kind, node)
				must(p.T, err)
			}
		}
	}},
	{says(`if Calico should serve the pods: on .+, remove the other network's configuration from /etc/cni/net\.d \(Calico's must be the first by name\), then restart the pods`), func(p *person, _ []string) {
		p.restart(p.usersOf(p.finding.Subject.IP + "/" + strconv.Itoa(netip.MustParseAddr(p.finding.Subject.IP).BitLen()))...)
	}},
	{says(`release the leaked addresses of (\S+) \(\d+\), as described under ip/leaked`), func(p *person, said []string) {
		runAll(p.T, p.Cluster, []string{"calico-audit repair --leaked-ips --without-host-evidence --node " + said[1]})
	}},
	{says(`run fewer pods on the node, or move its pods to a pool with larger blocks; Calico rejects maxBlocksPerHost while strict affinity is off`), func(*person, []string) {}},
	{says(`add a pool with larger blocks \(blockSize 26\) and another CIDR, then set disabled: true on this pool \(with Tigera's operator disableNewAllocations: true in the Installation, calicoNetwork\.ipPools\) and restart its pods, one controller at a time`), func(p *person, _ []string) {
		p.poolForNode(nil)
		spec, err := p.Get(p.Context(), calico("ippools"), "", "pods")
		must(p.T, err)
		p.editPool("pods", disable)
		p.restart(p.usersOf(spec.Object["spec"].(map[string]any)["cidr"].(string))...)
	}},
	{says(`let calico-node run on the node and find its address \(IP_AUTODETECTION_METHOD\)`), func(p *person, _ []string) {
		p.calicoNode(p.finding.Subject.Node)
	}},
	{says(`if the Node was deleted and registered again: restart calico-node on (\S+), which then records the node's address and tunnel`), func(p *person, said []string) {
		p.calicoNode(said[1])
	}},
	{says(`let calico-node become Ready: its log names the reason; if it waits for Typha, .*`), (*person).openNodes},
	{says(`restart calico-node on the node: it sets the condition NetworkUnavailable to False when it starts; on Google Cloud, .*`), (*person).openNodes},
	{says(`let the controller that removes the taint run and find the machine: .*`), (*person).openNodes},
	{says(`let the pods of calico-kube-controllers tolerate the taint \(.*\), or add a node without it`), (*person).startCollector},
	{says(`let kube-controller-manager give each node a podCIDR \(.*\), then register the node again`), (*person).assignPodCIDRs},
	{says(`drain (.+), delete the Node and register it again, so that kube-controller-manager gives it another podCIDR; .*`), (*person).renewPodCIDRs},
	{says(`if host-local should serve the pods: set USE_POD_CIDR=true in the DaemonSet calico-node and in Typha, .*`), func(p *person, _ []string) {
		nodes, err := p.Kube.CoreV1().Nodes().List(p.Context(), metav1.ListOptions{})
		must(p.T, err)
		for _, n := range nodes.Items {
			first := netip.MustParsePrefix(n.Spec.PodCIDR).Addr().Next()
			_, err := p.Kube.CoreV1().Nodes().Patch(p.Context(), n.Name, types.MergePatchType, []byte(`{"metadata":{"annotations":{"projectcalico.org/IPv4IPIPTunnelAddr":"`+first.String()+`"}}}`), metav1.PatchOptions{})
			must(p.T, err)
		}
	}},
	{says(`set vxlanMode: Always (?:and ipipMode: Never )?on the pool .*`), func(p *person, _ []string) {
		p.editPool(p.finding.Subject.Name, func(spec map[string]any) { spec["vxlanMode"], spec["ipipMode"] = "Always", "Never" })
		nodes, err := p.Kube.CoreV1().Nodes().List(p.Context(), metav1.ListOptions{})
		must(p.T, err)
		for i := range nodes.Items { // as calico-node does when it restarts
			_, err := p.seeder.Tunnel(p.Context(), seeding.VXLAN, nodes.Items[i].Name)
			must(p.T, err)
		}
	}},
	{says(`start calico-kube-controllers again: give its Deployment one replica, or see in its pod's events and log why it is not Ready`), (*person).startCollector},
	{says(`annotate Service (\S+)/(\S+) with the addresses that it keeps, such as the oldest of each family: (.+)`), (*person).keepAddresses},
	{says(`find out why calico-node does not run on the node: its pod's status and log name the reason, such as no interface that fits IP_AUTODETECTION_METHOD, or can-reach= with an address of the other family`), func(p *person, _ []string) {
		p.calicoNode(p.finding.Subject.Node)
	}},
	{says(`set the kubelet's --node-ip on (.+) to the node's own address, and restart the kubelet`), func(p *person, said []string) {
		for _, node := range listed(said[1]) {
			p.calicoNode(node)
		}
	}},
	{says(`delete pool (\S+), which holds no block, and create it again with a blockSize from (\d+) to \d+`), func(p *person, said []string) {
		pool, err := p.Get(p.Context(), calico("ippools"), "", said[1])
		must(p.T, err)
		must(p.T, p.Delete(p.Context(), calico("ippools"), "", said[1]))
		spec := pool.Object["spec"].(map[string]any)
		size, err := strconv.ParseInt(said[2], 10, 64)
		must(p.T, err)
		spec["blockSize"] = size
		must(p.T, p.Create(p.Context(), calico("ippools"), map[string]any{"metadata": map[string]any{"name": said[1]}, "spec": spec}))
	}},
	{says(`delete or narrow the IPReservations, if their addresses are not used elsewhere; IPReservation (.+) covers \d+ blocks? of \S+`), func(p *person, said []string) {
		for _, name := range listed(said[1]) {
			must(p.T, p.Delete(p.Context(), calico("ipreservations"), "", name))
		}
	}},
	{says(`find out what changed IPReservation (\S+), and delete it if it is not wanted`), func(p *person, said []string) {
		must(p.T, p.Delete(p.Context(), calico("ipreservations"), "", said[1]))
	}},
	{says(`release the leaked addresses of machines that you know to be off \(--terminated\): .*`), (*person).runCommands},
	{says(`release the leaked addresses without proof that nothing uses them`), (*person).runCommands},
	{says(`restart these pods, because no plan can record an address without the annotation cni\.projectcalico\.org/containerID: (.*)`), func(p *person, said []string) { p.restart(listed(said[1])...) }},
	{says(`clean up after deleted nodes \(.+\)(?:, with .+)?, once their machines are known to be off`), (*person).runCommands},
}

func says(words string) *regexp.Regexp { return regexp.MustCompile("^" + words + "$") }

func calico(plural string) testcluster.Resource { return testcluster.CRDv1.Resource(plural) }

// thenRestart begins the last sentence of some advice.
const thenRestart = "; then restart these pods by hand"

// practiceOf returns the index in practice that matches the advice, and the submatches.
// The index is -1 if no entry matches.
func practiceOf(advice string) (int, []string) {
	advice, _, _ = strings.Cut(advice, thenRestart)
	for i := range practice {
		if said := practice[i].words.FindStringSubmatch(advice); said != nil {
			return i, said
		}
	}
	return -1, nil
}

// followed follows the advice. Then it restarts the pending pods.
func (p *person) followed() {
	must(p.T, p.seeder.Init(p.Context()))
	p.addresses()
	i, said := practiceOf(p.advice.Title)
	practice[i].follow(p, said)
	if _, pods, ok := strings.Cut(p.advice.Title, thenRestart); ok {
		i, said := practiceOf(strings.TrimPrefix(thenRestart, "; then ") + pods)
		practice[i].follow(p, said)
	}
	if hasFlag(p.advice.Commands, []string{"--rehome"}) { // --rehome moves pods of controllers; these pods have no controller
		for i := range p.report.Findings {
			if f := &p.report.Findings[i]; f.Check == "ip/borrowed" {
				p.restart(p.usersOf(f.Subject.IP + "/" + strconv.Itoa(netip.MustParseAddr(f.Subject.IP).BitLen()))...)
			}
		}
	}
	for _, pod := range p.pods() {
		if pod.Status.Phase == corev1.PodPending && pod.Spec.NodeName != "" && !pod.Spec.HostNetwork {
			p.restart(pod.Namespace + "/" + pod.Name)
		}
	}
}

// addresses sets the node addresses that a kubelet would report. The fixtures omit them.
func (p *person) addresses() {
	nodes, err := p.Kube.CoreV1().Nodes().List(p.Context(), metav1.ListOptions{})
	must(p.T, err)
	for i, n := range nodes.Items {
		if len(n.Status.Addresses) == 0 {
			patch := fmt.Sprintf(`{"status":{"addresses":[{"type":"InternalIP","address":"203.0.113.%d"}]}}`, i+1) // no Calico address of a fixture
			_, err := p.Kube.CoreV1().Nodes().Patch(p.Context(), n.Name, types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{}, "status")
			must(p.T, err)
		}
	}
}

func (p *person) pods() []corev1.Pod {
	all, err := p.Kube.CoreV1().Pods("").List(p.Context(), metav1.ListOptions{})
	must(p.T, err)
	return all.Items
}

// listed splits a list such as "a, b and c" into names.
func listed(text string) []string {
	return strings.Split(strings.ReplaceAll(text, " and ", ", "), ", ")
}

// usersOf returns the pods that have an address of a CIDR.
func (p *person) usersOf(cidr string) (out []string) {
	in := netip.MustParsePrefix(cidr)
	for _, pod := range p.pods() {
		if a, err := netip.ParseAddr(pod.Status.PodIP); err == nil && !pod.Spec.HostNetwork && in.Contains(a) {
			out = append(out, pod.Namespace+"/"+pod.Name)
		}
	}
	return out
}

// restart deletes pods and starts them again on their nodes. Like CNI DEL, it releases
// their recorded addresses. Like CNI ADD, it asks Calico's own allocator for new ones.
func (p *person) restart(names ...string) {
	for _, full := range names {
		namespace, name, _ := strings.Cut(full, "/")
		pod, err := p.Kube.CoreV1().Pods(namespace).Get(p.Context(), name, metav1.GetOptions{})
		must(p.T, err)
		p.end(namespace, name)
		p.start(seeding.Pod{Namespace: namespace, Name: name, Node: pod.Spec.NodeName, Annotations: requests(pod.Annotations), IPv6Only: strings.Contains(pod.Status.PodIP, ":")})
	}
}

// requests returns the annotations with which a pod requests pools.
func requests(annotations map[string]string) map[string]string {
	annotations = maps.Clone(annotations)
	maps.DeleteFunc(annotations, func(key, _ string) bool { return !strings.HasSuffix(key, "pools") })
	return annotations
}

// recorded returns the addresses that blocks record for a pod. It reads the blocks itself
// because Calico's client does not look up addresses in disabled pools.
func (p *person) recorded(namespace, name string) (out []netip.Addr) {
	all, err := p.List(p.Context(), calico("ipamblocks"))
	must(p.T, err)
	for i := range all {
		var b libapi.IPAMBlock
		must(p.T, runtime.DefaultUnstructuredConverter.FromUnstructured(all[i].Object, &b))
		block := &blocks.Block{CIDR: netip.MustParsePrefix(b.Spec.CIDR)}
		for ordinal, attribute := range b.Spec.Allocations {
			if attribute == nil {
				continue
			}
			if attrs := b.Spec.Attributes[*attribute].AttrSecondary; attrs["pod"] == name && attrs["namespace"] == namespace {
				out = append(out, block.Address(ordinal))
			}
		}
	}
	return out
}

// end deletes a pod. Like CNI DEL, it releases the addresses that blocks record for it.
func (p *person) end(namespace, name string) {
	for _, a := range p.recorded(namespace, name) {
		must(p.T, p.seeder.ReleaseIP(p.Context(), a))
	}
	must(p.T, p.Delete(p.Context(), testcluster.Core[2], namespace, name))
}

// calicoNode plays calico-node and the kubelet of a node whose machine got an address of its own.
func (p *person) calicoNode(node string) {
	sum := 0
	for _, b := range []byte(node) {
		sum += int(b)
	}
	address := fmt.Sprintf("192.0.2.%d", 200+sum%50)
	_, err := p.Kube.CoreV1().Nodes().Patch(p.Context(), node, types.MergePatchType, []byte(`{"metadata":{"annotations":{"projectcalico.org/IPv4Address":"`+address+`/24"}}}`), metav1.PatchOptions{})
	must(p.T, err)
	patch := `{"status":{"addresses":[{"type":"InternalIP","address":"` + address + `"}]}}`
	_, err = p.Kube.CoreV1().Nodes().Patch(p.Context(), node, types.MergePatchType, []byte(patch), metav1.PatchOptions{}, "status")
	must(p.T, err)
}

// newPod starts a pod on a node, of the finding's family.
func (p *person) newPod(node string) {
	p.start(seeding.Pod{Namespace: "default", Name: "new-" + node, Node: node, IPv6Only: strings.Contains(p.finding.Subject.IP, ":")})
}

func (p *person) start(pod seeding.Pod) {
	_, err := p.Kube.CoreV1().Namespaces().Get(p.Context(), pod.Namespace, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		err = p.seeder.Namespace(p.Context(), pod.Namespace, nil, nil)
	}
	must(p.T, err)
	if _, err := p.seeder.Pod(p.Context(), pod); err != nil {
		p.Errorf("pod %s/%s starts again without an address: %v", pod.Namespace, pod.Name, err)
	}
}

// addPool adds a pool like the named one, with at least the advised number of blocks,
// rounded up to a power of two.
func (p *person) addPool(said []string) {
	least, err := strconv.Atoi(said[2])
	must(p.T, err)
	p.poolLike(said[1], said[1]+"-more", least, nil)
	if p.finding.Subject.Node != "" { // the node claims a block with its next pod
		p.newPod(p.finding.Subject.Node)
	}
	if said[3] == "" {
		return
	}
	for _, pod := range p.pods() {
		for key, value := range requests(pod.Annotations) {
			var names []string
			must(p.T, json.Unmarshal([]byte(value), &names))
			if len(names) == 0 || !slices.Contains(listed(said[3]), names[0]) {
				continue
			}
			text, _ := json.Marshal(append(names, said[1]+"-more"))
			p.annotate(pod, key, string(text))
		}
	}
}

// annotate sets an annotation of a pod, or removes it if value is nil.
func (p *person) annotate(pod corev1.Pod, key string, value any) {
	// The API server rejects writes in a namespace without an object, which some states have.
	_, err := p.Kube.CoreV1().Namespaces().Create(p.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: pod.Namespace}}, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		p.Fatal(err)
	}
	patch, _ := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]any{key: value}}})
	_, err = p.Kube.CoreV1().Pods(pod.Namespace).Patch(p.Context(), pod.Name, types.MergePatchType, patch, metav1.PatchOptions{})
	must(p.T, err)
}

// poolLike adds a pool with the spec of another pool, its own CIDR and at least count
// blocks.
func (p *person) poolLike(like, name string, count int, change func(spec map[string]any)) {
	pool, err := p.Get(p.Context(), calico("ippools"), "", like)
	must(p.T, err)
	spec := pool.Object["spec"].(map[string]any)
	size := spec["blockSize"].(int64)
	at := "10.200.0.0"
	if strings.Contains(spec["cidr"].(string), ":") {
		at = "fd00:200::"
	}
	spec["cidr"] = fmt.Sprintf("%s/%d", at, int(size)-bits.Len(uint(count-1)))
	if change != nil {
		change(spec)
	}
	must(p.T, p.Create(p.Context(), calico("ippools"), map[string]any{"metadata": map[string]any{"name": name}, "spec": spec}))
}

func (p *person) editPool(name string, change func(spec map[string]any)) {
	must(p.T, p.seeder.EditPool(p.Context(), name, change))
}

func disable(spec map[string]any) { spec["disabled"] = true }

// poolAround returns the name of the pool that overlaps a CIDR.
func (p *person) poolAround(cidr string) string {
	pools, err := p.List(p.Context(), calico("ippools"))
	must(p.T, err)
	for _, pool := range pools {
		if netip.MustParsePrefix(pool.Object["spec"].(map[string]any)["cidr"].(string)).Overlaps(netip.MustParsePrefix(cidr)) {
			return pool.GetName()
		}
	}
	p.Fatalf("no pool has %s", cidr)
	return ""
}

func (p *person) replacePool([]string) {
	old := p.poolAround(p.finding.Subject.CIDR)
	p.poolLike(old, old+"-new", 16, nil)
	p.editPool(old, disable)
	spec, err := p.Get(p.Context(), calico("ippools"), "", old)
	must(p.T, err)
	p.restart(p.usersOf(spec.Object["spec"].(map[string]any)["cidr"].(string))...)
}

func (p *person) poolForNode([]string) {
	must(p.T, p.seeder.RawPool(p.Context(), "for-all", map[string]any{"cidr": "10.201.0.0/24", "blockSize": 26, "allowedUses": []any{"Workload", "Tunnel"}}))
}

// servePods lets waiting pods use any pool, and lets a pool serve any namespace.
func (p *person) servePods([]string) {
	p.poolForNode(nil)
	for _, pod := range p.pods() {
		for key := range requests(pod.Annotations) {
			p.annotate(pod, key, nil)
		}
	}
}

func (p *person) correctSelector(said []string) {
	name := said[1]
	if name == "" {
		name = p.finding.Subject.Name
	}
	p.editPool(name, func(spec map[string]any) {
		delete(spec, "namespaceSelector")
		spec["nodeSelector"] = "all()"
	})
}

func (p *person) endOverlap(said []string) {
	for _, e := range p.finding.Evidence {
		if e.Name != "other pools" {
			continue
		}
		name := p.finding.Subject.Name
		pool, err := p.Get(p.Context(), calico("ippools"), "", name)
		must(p.T, err)
		p.editPool(name, disable)
		p.restart(p.usersOf(pool.Object["spec"].(map[string]any)["cidr"].(string))...)
		_, err = p.Kubectl(p.Context(), "delete", said[1], name)
		must(p.T, err)
	}
}

func (p *person) endCorruptBlock([]string) {
	cidr := netip.MustParsePrefix(p.finding.Subject.CIDR)
	code, _, log := run(p.T, p.TempDir(), "snapshot", "-o", "before.json", "--kubeconfig", p.KubeconfigPath())
	if code != 0 {
		p.Errorf("snapshot ends with %d:\n%s", code, log)
	}
	must(p.T, p.seeder.Reservation(p.Context(), "corrupt", cidr))
	p.restart(p.usersOf(cidr.String())...)
	affinities, err := p.List(p.Context(), calico("blockaffinities"))
	must(p.T, err)
	for _, a := range affinities {
		if a.Object["spec"].(map[string]any)["cidr"] == cidr.String() {
			must(p.T, p.Delete(p.Context(), calico("blockaffinities"), "", a.GetName()))
		}
	}
	must(p.T, p.Delete(p.Context(), calico("ipamblocks"), "", blocks.BlockName(cidr)))
	must(p.T, p.Delete(p.Context(), calico("ipreservations"), "", "corrupt"))
}

// endPool recreates the deleted pool of a block, because calicoctl releases only blocks
// of the pool that it deletes.
func (p *person) endPool([]string) {
	block := netip.MustParsePrefix(p.finding.Subject.CIDR)
	spec := map[string]any{"cidr": block.String(), "blockSize": int64(block.Bits()), "allowedUses": []any{"Workload", "Tunnel"}, "disabled": true}
	must(p.T, p.seeder.RawPool(p.Context(), "again", spec))
	p.restart(p.usersOf(block.String())...)
	_, err := p.Calicoctl(p.Context(), "delete", "ippool", "again")
	must(p.T, err)
}

// endDuplicate restarts the pods that use the address but are not named in its
// allocation.
func (p *person) endDuplicate([]string) {
	named := ""
	for _, e := range p.finding.Evidence {
		if e.Name == "allocated to" {
			named = strings.Fields(e.Value)[0]
		}
	}
	a := netip.MustParseAddr(p.finding.Subject.IP)
	for _, pod := range p.usersOf(netip.PrefixFrom(a, a.BitLen()).String()) {
		if pod != named {
			p.restart(pod)
		}
	}
}

// renewTunnel runs the advised command and plays calico-node. The node gets a block with
// its next pod, and calico-node takes the new tunnel address from that block.
func (p *person) renewTunnel(said []string) {
	node := said[1]
	p.newPod(node)
	_, err := p.Kubectl(p.Context(), strings.Fields(p.advice.Commands[0])[1:]...)
	must(p.T, err)
	must(p.T, p.seeder.ReleaseIP(p.Context(), netip.MustParseAddr(p.finding.Subject.IP)))
	kind := seeding.VXLAN
	if strings.Contains(p.advice.Commands[0], "IPv6WireguardInterfaceAddr") {
		kind = seeding.WireGuardV6
	}
	_, err = p.seeder.Tunnel(p.Context(), kind, node)
	must(p.T, err)
}

// config changes the spec of one of Calico's settings objects. It creates the object if
// necessary.
func (p *person) config(plural string, change func(spec map[string]any)) {
	all, err := p.List(p.Context(), calico(plural))
	must(p.T, err)
	if len(all) == 0 {
		spec := map[string]any{}
		if plural == "ipamconfigs" {
			spec = map[string]any{"strictAffinity": false, "autoAllocateBlocks": true}
		}
		change(spec)
		must(p.T, p.Create(p.Context(), calico(plural), map[string]any{"metadata": map[string]any{"name": "default"}, "spec": spec}))
		return
	}
	must(p.T, p.Edit(p.Context(), calico(plural), "", all[0].GetName(), func(object map[string]any) { change(object["spec"].(map[string]any)) }))
}

func (p *person) runCommands([]string) { runAll(p.T, p.Cluster, p.advice.Commands) }

// openNodes plays the controllers that remove a taint when a node's start has ended, and starts the
// collector again if its pod waited for that.
func (p *person) openNodes([]string) {
	nodes, err := p.Kube.CoreV1().Nodes().List(p.Context(), metav1.ListOptions{})
	must(p.T, err)
	for i := range nodes.Items {
		n := &nodes.Items[i]
		n.Spec.Taints = slices.DeleteFunc(n.Spec.Taints, func(t corev1.Taint) bool {
			return t.Key == blocks.TaintNetwork || blocks.Uninitialized[t.Key] != ""
		})
		_, err := p.Kube.CoreV1().Nodes().Update(p.Context(), n, metav1.UpdateOptions{})
		must(p.T, err)
	}
	if slices.ContainsFunc(p.pods(), func(pod corev1.Pod) bool { return strings.HasPrefix(pod.Name, "calico-kube-controllers-") }) {
		p.startCollector(nil)
	}
}

// assignPodCIDRs plays kube-controller-manager, and host-local for the pods that wait.
func (p *person) assignPodCIDRs([]string) {
	nodes, err := p.Kube.CoreV1().Nodes().List(p.Context(), metav1.ListOptions{})
	must(p.T, err)
	for i, n := range nodes.Items {
		if n.Spec.PodCIDR != "" {
			continue
		}
		_, err := p.Kube.CoreV1().Nodes().Patch(p.Context(), n.Name, types.MergePatchType, fmt.Appendf(nil, `{"spec":{"podCIDR":"10.244.%[1]d.0/24","podCIDRs":["10.244.%[1]d.0/24"]}}`, 200+i), metav1.PatchOptions{})
		must(p.T, err)
		for _, pod := range p.pods() {
			if pod.Spec.NodeName == n.Name && pod.Status.Phase == corev1.PodPending {
				status := fmt.Appendf(nil, `{"status":{"phase":"Running","podIP":"10.244.%[1]d.5","podIPs":[{"ip":"10.244.%[1]d.5"}]}}`, 200+i)
				_, err := p.Kube.CoreV1().Pods(pod.Namespace).Patch(p.Context(), pod.Name, types.MergePatchType, status, metav1.PatchOptions{}, "status")
				must(p.T, err)
			}
		}
	}
}

// renewPodCIDRs plays kube-controller-manager, which knows no node by the name any more, and host-local.
func (p *person) renewPodCIDRs(said []string) {
	for i, name := range listed(said[1]) {
		n, err := p.Kube.CoreV1().Nodes().Get(p.Context(), name, metav1.GetOptions{})
		must(p.T, err)
		must(p.T, p.Kube.CoreV1().Nodes().Delete(p.Context(), name, metav1.DeleteOptions{}))
		cidr := fmt.Sprintf("10.244.%d.0/24", 220+i)
		n.ObjectMeta = metav1.ObjectMeta{Name: name, Labels: n.Labels, Annotations: n.Annotations}
		n.Spec.PodCIDR, n.Spec.PodCIDRs = cidr, []string{cidr}
		made, err := p.Kube.CoreV1().Nodes().Create(p.Context(), n, metav1.CreateOptions{})
		must(p.T, err)
		made.Status = n.Status
		_, err = p.Kube.CoreV1().Nodes().UpdateStatus(p.Context(), made, metav1.UpdateOptions{})
		must(p.T, err)
		a := netip.MustParsePrefix(cidr).Addr().Next()
		for _, pod := range p.pods() {
			if pod.Spec.NodeName == name {
				a = a.Next()
				status := fmt.Appendf(nil, `{"status":{"podIP":"%[1]s","podIPs":[{"ip":"%[1]s"}]}}`, a)
				_, err := p.Kube.CoreV1().Pods(pod.Namespace).Patch(p.Context(), pod.Name, types.MergePatchType, status, metav1.PatchOptions{}, "status")
				must(p.T, err)
			}
		}
	}
}

// startCollector replaces the collector's pod by one that is Ready.
func (p *person) startCollector([]string) {
	for _, pod := range p.pods() {
		if strings.HasPrefix(pod.Name, "calico-kube-controllers-") {
			p.end(pod.Namespace, pod.Name)
		}
	}
	nodes, err := p.Kube.CoreV1().Nodes().List(p.Context(), metav1.ListOptions{})
	must(p.T, err)
	p.start(seeding.Pod{Namespace: "kube-system", Name: "calico-kube-controllers-new", Node: nodes.Items[0].Name})
}

// keepAddresses annotates a Service, and plays kube-controllers: it releases the addresses that the
// annotation does not name.
func (p *person) keepAddresses(said []string) {
	keep := listed(said[3])
	_, err := p.Kubectl(p.Context(), "annotate", "service", "--namespace", said[1], said[2], `projectcalico.org/loadBalancerIPs=["`+strings.Join(keep, `","`)+`"]`)
	must(p.T, err)
	for _, e := range p.finding.Evidence {
		for _, a := range listed(e.Value) {
			if addr, err := netip.ParseAddr(a); err == nil && !slices.Contains(keep, a) {
				must(p.T, p.seeder.ReleaseIP(p.Context(), addr))
			}
		}
	}
}

// joinReflectors gives each route reflector, or the node that should be one, its own cluster ID and peers
// each node with them.
func (p *person) joinReflectors(_ []string) {
	nodes, err := p.Kube.CoreV1().Nodes().List(p.Context(), metav1.ListOptions{})
	must(p.T, err)
	for i, n := range nodes.Items {
		if n.Annotations["projectcalico.org/RouteReflectorClusterID"] == "" && !strings.Contains(p.finding.Message, " "+n.Name+", which has sessions with both, has no route reflector cluster ID") {
			continue
		}
		must(p.T, p.seeder.NodeBGP(p.Context(), n.Name, 0, fmt.Sprintf("10.255.0.%d", i+1)))
		must(p.T, p.seeder.LabelNode(p.Context(), n.Name, map[string]string{"reflects": "true"}))
	}
	must(p.T, p.seeder.BGPPeer(p.Context(), "reflectors-of-all", apiv3.BGPPeerSpec{NodeSelector: "all()", PeerSelector: "has(reflects)"}))
}
