// Package podspec parses the members of pods' specs that an audit reads: the rules of the scheduler,
// and other facts that the pods of a controller share.
package podspec

import (
	"bytes"
	"encoding/json"
	"errors"
	"math"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	helpers "k8s.io/component-helpers/resource"

	"github.com/calico-audit/calico-audit/blocks"
)

// Facts holds the facts that members of a pod's spec state.
type Facts struct {
	Placement  *blocks.Placement
	Scheduling *blocks.Scheduling
	// FelixOnly, HasScratch and RunsOnce are those of a [blocks.Workload].
	FelixOnly, HasScratch, RunsOnce bool
	// Claimed is true if the pod uses a PersistentVolumeClaim, HostBound if it has a volume that is
	// bound to its node.
	Claimed, HostBound bool
	// Env holds the environment variables of the containers; nil without any. A variable with a
	// value from another object is "".
	Env map[string]string
	// Fault is the field that cannot be parsed, for a Reason; empty if all can.
	Fault, Reason string
}

// Parse parses members of a pod's spec: entries of a JSON object, each followed by a comma.
func Parse(text []byte) *Facts {
	out, spec := &Facts{}, corev1.PodSpec{}
	err := json.Unmarshal(slices.Concat([]byte("{"), bytes.TrimSuffix(text, []byte(",")), []byte("}")), &spec)
	out.place(&spec)
	out.own(&spec)
	out.schedule(&spec)
	if wrong := (*json.UnmarshalTypeError)(nil); errors.As(err, &wrong) {
		out.Fault, out.Reason = "spec."+wrong.Field, "has an entry that cannot be parsed"
	} else if err != nil {
		out.Fault, out.Reason = "spec", "has scheduling rules that cannot be parsed"
	}
	return out
}

// place sets the placement; it stays nil if any node will do.
func (x *Facts) place(spec *corev1.PodSpec) {
	p, all, required := &blocks.Placement{}, []corev1.NodeSelectorTerm{{}}, false
	if a := spec.Affinity; a != nil && a.NodeAffinity != nil && a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution != nil {
		all, required = a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms, true
	}
	for i := range all {
		if required && len(all[i].MatchExpressions)+len(all[i].MatchFields) == 0 {
			continue // selects no nodes
		}
		if selects, ok := termSelector(spec.NodeSelector, &all[i]); ok {
			p.Terms = append(p.Terms, selects)
		}
	}
	for _, t := range spec.Tolerations {
		if t.Effect != corev1.TaintEffectNoExecute || !strings.HasPrefix(t.Key, blocks.LifeCycleTaints) { // skips the two that every pod has
			p.Tolerates = append(p.Tolerates, blocks.Toleration{Key: t.Key, Operator: string(t.Operator), Value: t.Value, Effect: string(t.Effect)})
		}
	}
	if required || len(spec.NodeSelector) > 0 || len(p.Tolerates) > 0 {
		x.Placement = p
	}
}

// operators are those of node affinities (k8s.io/api/core/v1, NodeSelectorOperator).
var operators = map[corev1.NodeSelectorOperator]selection.Operator{
	"In": selection.In, "NotIn": selection.NotIn, "Exists": selection.Exists, "DoesNotExist": selection.DoesNotExist,
	"Gt": selection.GreaterThan, "Lt": selection.LessThan,
}

// termSelector returns the label selector of a term and a nodeSelector; false if it is invalid.
func termSelector(selector map[string]string, term *corev1.NodeSelectorTerm) (string, bool) {
	all, ok := labels.NewSelector(), true
	add := func(key string, operator corev1.NodeSelectorOperator, values []string) {
		q, err := labels.NewRequirement(key, operators[operator], values)
		if ok = ok && err == nil; ok {
			all = all.Add(*q)
		}
	}
	for key, v := range selector {
		add(key, corev1.NodeSelectorOpIn, []string{v})
	}
	for _, e := range term.MatchExpressions {
		add(e.Key, e.Operator, e.Values)
	}
	for _, e := range term.MatchFields {
		for i := range e.Values {
			e.Values[i] = blocks.PlacementName(e.Values[i])
		}
		add(e.Key, e.Operator, e.Values)
	}
	return all.String(), ok
}

// own sets the facts that do not concern the scheduler.
func (x *Facts) own(spec *corev1.PodSpec) {
	x.RunsOnce = spec.RestartPolicy != "" && spec.RestartPolicy != corev1.RestartPolicyAlways
	for i := range spec.Volumes {
		v := spec.Volumes[i].VolumeSource
		x.HasScratch = x.HasScratch || v.EmptyDir != nil
		x.Claimed = x.Claimed || v.PersistentVolumeClaim != nil || v.Ephemeral != nil
		v.EmptyDir, v.PersistentVolumeClaim, v.Ephemeral = nil, nil, nil
		x.HostBound = x.HostBound || v != corev1.VolumeSource{}
	}
	var checks []string
	for _, c := range spec.Containers {
		for _, v := range c.Env {
			if x.Env == nil {
				x.Env = map[string]string{}
			}
			x.Env[v.Name] = v.Value
		}
		for _, p := range []*corev1.Probe{c.LivenessProbe, c.ReadinessProbe} {
			if p != nil && p.Exec != nil {
				checks = append(checks, p.Exec.Command...)
			}
		}
	}
	x.FelixOnly = slices.Contains(checks, "-felix-ready") && !slices.ContainsFunc(checks, func(s string) bool { return strings.HasPrefix(s, "-bird") })
}

// schedule sets the rules of the scheduler, unless they were not kept: the API server sets
// schedulerName, and older releases of this program dropped it.
func (x *Facts) schedule(spec *corev1.PodSpec) {
	if spec.SchedulerName == "" {
		return
	}
	s := &blocks.Scheduling{Requests: Quantities(helpers.PodRequests(&corev1.Pod{Spec: *spec}, helpers.PodResourcesOptions{}))}
	for _, c := range slices.Concat(spec.InitContainers, spec.Containers) {
		s.HostPorts = s.HostPorts || slices.ContainsFunc(c.Ports, func(x corev1.ContainerPort) bool { return x.HostPort != 0 })
	}
	rule := func(applies bool, name string) {
		if applies {
			s.Undecided = name
		}
	}
	rule(len(spec.SchedulingGates) > 0 || spec.SchedulingGroup != nil, "scheduling gates or a scheduling group")
	rule(len(spec.ResourceClaims) > 0, "resource claims")
	rule(slices.ContainsFunc(spec.TopologySpreadConstraints, func(c corev1.TopologySpreadConstraint) bool { return c.WhenUnsatisfiable != corev1.ScheduleAnyway }), "a topology spread constraint (DoNotSchedule)")
	if a := spec.Affinity; a != nil && a.PodAntiAffinity != nil {
		for _, t := range a.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution {
			rule(true, "required pod anti-affinity")
			if t.LabelSelector != nil { // without one it selects no pods
				s.Repels = append(s.Repels, blocks.PodTerm{Namespaces: t.Namespaces, AnyNamespace: t.NamespaceSelector != nil, Selector: metav1.FormatLabelSelector(t.LabelSelector)})
			}
		}
	}
	rule(spec.Affinity != nil && spec.Affinity.PodAffinity != nil && len(spec.Affinity.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution) > 0, "required pod affinity")
	rule(spec.SchedulerName != corev1.DefaultSchedulerName, "the scheduler "+spec.SchedulerName)
	x.Scheduling = s
}

// Quantities returns the resources of a list. Quantities that do not fit become the largest.
func Quantities(list corev1.ResourceList) blocks.Quantities {
	out := blocks.Quantities{}
	for name, q := range list {
		if q.Value() > math.MaxInt64/1000 {
			out[string(name)] = math.MaxInt64
		} else if milli := q.MilliValue(); milli > 0 {
			out[string(name)] = milli
		}
	}
	return out
}
