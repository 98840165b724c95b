package checks

import (
	"fmt"
	"strings"

	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/audit/remedies"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/audit/state/services"
	"github.com/calico-audit/calico-audit/blocks"
)

// enableLoadBalancer configures the controller. enableByEnvironment does so if an environment
// variable overrides the configuration.
var (
	enableLoadBalancer = remedies.ByHand("add controllers.loadBalancer to the KubeControllersConfiguration, with assignIPs: RequestedServicesOnly or AllServices",
		"Services of type LoadBalancer get addresses of the pool", "with AllServices, Calico serves every Service of type LoadBalancer without a class, also those of another controller",
		"kubectl get kubecontrollersconfigurations -o yaml")
	enableByEnvironment = remedies.ByHand("add loadbalancer to the environment variable ENABLED_CONTROLLERS of calico-kube-controllers, which overrides the KubeControllersConfiguration",
		enableLoadBalancer.Effect, "calico-kube-controllers restarts", "kubectl get deployments -A -o wide --field-selector metadata.name=calico-kube-controllers")
)

var configLBController = audit.Check{
	ID:         "config/lb-controller",
	Title:      "a LoadBalancer pool exists, and kube-controllers' loadBalancer controller is not configured, has given a Service two addresses of a family, or ignores one that asks for an address; or BGP does not announce a Service's address",
	Severities: []state.Severity{state.Warning},
	Why:        "Only that controller assigns the pool's addresses to Services. Without it, Services of type LoadBalancer stay pending, and the addresses of deleted Services stay allocated. Older releases may give a Service a second address when kube-controllers starts, which uses up the pool (projectcalico/calico#12503). They do not read spec.loadBalancerIP, so with assignIPs: RequestedServicesOnly such a Service stays pending, too (projectcalico/calico#11815). BGP (serviceLoadBalancerIPs) announces only addresses that a controller wrote into the Service's status (projectcalico/calico#7921).",
	Confirm:    "kubectl get kubecontrollersconfigurations -o yaml; status.runningConfig shows the controllers that run. kubectl get services -A shows <pending> for Services without an address.",
	Misread:    "Without any KubeControllersConfiguration, kube-controllers creates one that has the controller.",
	Remedies:   []remedies.Remedy{enableLoadBalancer, enableByEnvironment, keepOne("NAMESPACE", "NAME", []string{"ADDRESS"}), askByAnnotation("NAMESPACE", "NAME", "ADDRESS"), remedies.AssignServices, remedies.AnnounceRange},
	Never:      "Never write the addresses into the Services' status: nothing would record them in a block.",
	Requires:   []blocks.Resource{blocks.Pools, blocks.ControllerConfig},
	Optional:   []blocks.Resource{blocks.Services, blocks.Blocks, blocks.ClusterInfos, blocks.BGPConfigs},
	Run: func(st *state.State, f *audit.Findings) {
		if waiting := services.Unassigned(st); len(waiting) > 0 {
			f.Add(audit.Finding{
				Severity: state.Warning, Subject: state.ClusterSubject(st), Absence: true, Remedies: []remedies.Remedy{remedies.AssignServices},
				Message: "BGP announces addresses of Services once their status has them, and nothing assigns those that Services ask for: " + waiting.String(),
			})
		} else if single := services.Unannounced(st); len(single) > 0 {
			f.Add(audit.Finding{
				Severity: state.Warning, Subject: state.ClusterSubject(st), Absence: true, Remedies: []remedies.Remedy{remedies.AnnounceRange},
				Message: fmt.Sprintf("BGP does not announce addresses of Services, because this Calico (%s) overlooks ranges of one address in serviceLoadBalancerIPs: %s", st.Cluster.CalicoVersion, single),
			})
		}
		var pools []*state.Pool
		for _, p := range st.Pools {
			if !p.Disabled && p.Allows(blocks.UseLoadBalancer) {
				pools = append(pools, p)
			}
		}
		c := &st.Controllers
		runs, field, fix := c.LoadBalancer, "spec.controllers.loadBalancer", enableLoadBalancer
		if c.Reported {
			runs = c.LoadBalancerRuns
			if c.LoadBalancer {
				field, fix = "status.runningConfig.controllers.loadBalancer", enableByEnvironment
			}
		}
		if len(pools) == 0 || !c.Present || runs {
			x := audit.Finding{Severity: state.Warning, Subject: state.ConfigSubject(), Pools: state.PoolsOf(pools...), Absence: true}
			var did blocks.Names
			if twice := services.Twice(st); len(twice) > 0 {
				did = append(did, "gave Services several addresses of a family")
				for _, s := range twice {
					oldest, all := s.Keep()
					x.Evidence = append(x.Evidence, state.Evidences(s.Namespace+"/"+s.Name, all)...)
					x.Remedies = append(x.Remedies, keepOne(s.Namespace, s.Name, oldest))
				}
			}
			if ignored := services.Ignored(st); len(ignored) > 0 {
				did = append(did, "ignores spec.loadBalancerIP, by which waiting Services ask for an address")
				for _, s := range ignored {
					x.Evidence = append(x.Evidence, state.Evidence{Name: s.Key().String(), Value: "asks for " + s.Asks.String()})
					x.Remedies = append(x.Remedies, askByAnnotation(s.Namespace, s.Name, s.Asks.String()))
				}
			}
			if x.Message = "kube-controllers' loadBalancer controller " + did.String(); len(did) > 0 {
				f.Add(x)
			}
			return
		}
		var pending []string
		for i := range st.Services {
			if st.Services[i].Pending {
				pending = append(pending, st.Services[i].Key().String())
			}
		}
		message := fmt.Sprintf("kube-controllers' loadBalancer controller is not configured for the LoadBalancer pools (%s)", state.PoolsOf(pools...))
		leaked := services.Leaked(st)
		if len(leaked) > 0 {
			message += fmt.Sprintf("; addresses still allocated to deleted Services: %d", len(leaked))
			fix.Effect += ", and those of deleted Services are released" // kube-controllers pkg/controllers/loadbalancer, syncIPAM
		}
		f.Add(audit.Finding{
			Severity: state.Warning, Subject: state.ConfigSubject(), Pools: state.PoolsOf(pools...), Message: message, Absence: len(leaked) > 0,
			Evidence: state.Evidences("object", "KubeControllersConfiguration default", field, "not set", "last written", c.Written, "pending Services", pending,
				"allocated to deleted Services", leaked),
			Remedies: []remedies.Remedy{fix},
		})
	},
}

// keepOne annotates a Service with the addresses that it keeps. The controller releases the others
// (syncService).
func keepOne(namespace, name string, addresses blocks.Names) remedies.Remedy {
	return remedies.ByHand(fmt.Sprintf("annotate Service %s/%s with the addresses that it keeps, such as the oldest of each family: %s", namespace, name, addresses),
		"Calico's controller releases its other addresses", "clients that use another address of the Service lose it", annotate(namespace, name, addresses))
}

// askByAnnotation lets a Service ask for its address in the way that all releases of Calico read.
func askByAnnotation(namespace, name, address string) remedies.Remedy {
	return remedies.ByHand(fmt.Sprintf("let Service %s/%s ask for %s by Calico's annotation", namespace, name, address), "it gets the address", "none", annotate(namespace, name, []string{address}))
}

func annotate(namespace, name string, addresses []string) string {
	return remedies.Shell("kubectl annotate service --namespace %s %s %s", namespace, name, `projectcalico.org/loadBalancerIPs=["`+strings.Join(addresses, `","`)+`"]`)
}
