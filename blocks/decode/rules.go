package decode

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

// rulesMask keeps the members of a pod's spec that become its [blocks.Placement], its
// [blocks.Scheduling], and other facts that the pods of a controller share.
var (
	rulesMask = object("", 0,
		&fieldMask{key: "nodeSelector", num: 7, schema: schemaMap, class: classLabel},
		affinityMask,
		listOf("tolerations", 22, object("", 0, value("key", 1, classTaint), value("operator", 2, classWord), value("value", 3, classLabelValue), value("effect", 4, classWord))),
		value("schedulerName", 19, classWord), value("restartPolicy", 3, classWord),
		listOf("containers", 2, container), listOf("initContainers", 20, container),
		quantities("overhead", 32), object("resources", 40, quantities("requests", 2)),
		listOf("topologySpreadConstraints", 33, object("", 0, value("whenUnsatisfiable", 3, classWord))),
		listOf("schedulingGates", 38, object("", 0)), listOf("resourceClaims", 39, object("", 0)), object("schedulingGroup", 43),
		listOf("volumes", 1, needing(":", object("", 0, object("", 2, object("emptyDir", 2), object("persistentVolumeClaim", 10), object("ephemeral", 29),
			object("hostPath", 1), object("gcePersistentDisk", 3), object("awsElasticBlockStore", 4), object("iscsi", 8), object("rbd", 11), object("cinder", 13),
			object("fc", 17), object("vsphereVolume", 20), object("azureDisk", 22), object("portworxVolume", 24), object("csi", 28))))))
	affinityMask = object("affinity", 18, object("nodeAffinity", 1, object("requiredDuringSchedulingIgnoredDuringExecution", 1,
		listOf("nodeSelectorTerms", 1, object("", 0,
			listOf("matchExpressions", 1, requirement(classLabelValue)),
			listOf("matchFields", 2, requirement(classNode)))))), podTerms("podAffinity", 2), podTerms("podAntiAffinity", 3))
	container = object("", 0, probe("livenessProbe", 10), probe("readinessProbe", 11),
		listOf("ports", 6, needing(":", object("", 0, &fieldMask{key: "hostPort", num: 2, schema: schemaNumber, class: classNumber}))),
		object("resources", 8, quantities("requests", 2)), value("restartPolicy", 24, classWord))
)

func requirement(values class) *fieldMask {
	return object("", 0, value("key", 1, classLabelKey), value("operator", 2, classWord), listOf("values", 3, value("", 3, values)))
}

func quantities(key string, num int) *fieldMask {
	return &fieldMask{key: key, num: num, schema: schemaQuantities, class: classQuantity}
}

// podTerms keeps a pod's required affinity or anti-affinity to other pods.
func podTerms(key string, num int) *fieldMask {
	return object(key, num, listOf("requiredDuringSchedulingIgnoredDuringExecution", 1, object("", 0,
		object("labelSelector", 1, &fieldMask{key: "matchLabels", num: 1, schema: schemaMap, class: classLabel}, listOf("matchExpressions", 2, requirement(classLabelValue))),
		listOf("namespaces", 2, value("", 2, classNamespace)), object("namespaceSelector", 4))))
}

// probe keeps the names of the checks that a container's probe runs.
func probe(key string, num int) *fieldMask {
	return object(key, num, object("", 1, object("exec", 1, listOf("command", 1, needing(`"-`, value("", 1, classWord))))))
}

// rules collects members of a pod's spec, as rulesMask keeps them, as JSON. Pods with equal JSON share
// their facts. The pods of a DaemonSet differ in where only.
type rules struct{ where, tolerates, others []byte }

// add reads a member of the spec.
func (p *rules) add(key []byte, r *JSONReader) {
	mask, to := rulesMask.member(key), &p.others
	switch string(key) {
	case "affinity":
		r.Object(func(key []byte) {
			if mask, to := affinityMask.member(key), &p.others; mask != nil {
				if string(key) == "nodeAffinity" {
					to = &p.where
				}
				*to = append(appendKept(append(appendText(append(*to, `"affinity":{`...), key), ':'), r, mask, nil), "},"...)
			}
		})
		return
	case "nodeSelector":
		to = &p.where
	case "tolerations":
		to = &p.tolerates
	}
	if mask != nil {
		*to = append(appendKept(append(appendText(*to, key), ':'), r, mask, nil), ',')
	}
}

// facts are what rules mean, and the fault in them. Pods with equal rules share them.
type facts struct {
	placement                                    *blocks.Placement
	scheduling                                   *blocks.Scheduling
	felixOnly, claimed, scratch, hostBound, once bool
	fault                                        *fault
}

// factsOf returns the facts of rules.
func (d *Decoder) factsOf(r *JSONReader, text []byte) *facts {
	x := shared(d.Strings, &d.Strings.facts, text, func() *facts { return parseRules(text) })
	if x.fault != nil {
		r.faultAt(x.fault.Field, x.fault.Reason)
	}
	return x
}

func parseRules(text []byte) *facts {
	out, spec := &facts{}, corev1.PodSpec{}
	err := json.Unmarshal(slices.Concat([]byte("{"), bytes.TrimSuffix(text, []byte(",")), []byte("}")), &spec)
	out.place(&spec)
	out.own(&spec)
	out.schedule(&spec)
	if wrong := (*json.UnmarshalTypeError)(nil); errors.As(err, &wrong) {
		out.fault = &fault{"spec." + wrong.Field, "has an entry that cannot be parsed"}
	} else if err != nil {
		out.fault = &fault{"spec", "has scheduling rules that cannot be parsed"}
	}
	return out
}

// place sets the placement; it stays nil if any node will do.
func (x *facts) place(spec *corev1.PodSpec) {
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
		x.placement = p
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
func (x *facts) own(spec *corev1.PodSpec) {
	x.once = spec.RestartPolicy != "" && spec.RestartPolicy != corev1.RestartPolicyAlways
	for i := range spec.Volumes {
		v := spec.Volumes[i].VolumeSource
		x.scratch = x.scratch || v.EmptyDir != nil
		x.claimed = x.claimed || v.PersistentVolumeClaim != nil || v.Ephemeral != nil
		v.EmptyDir, v.PersistentVolumeClaim, v.Ephemeral = nil, nil, nil
		x.hostBound = x.hostBound || v != corev1.VolumeSource{}
	}
	var checks []string
	for _, c := range spec.Containers {
		for _, p := range []*corev1.Probe{c.LivenessProbe, c.ReadinessProbe} {
			if p != nil && p.Exec != nil {
				checks = append(checks, p.Exec.Command...)
			}
		}
	}
	x.felixOnly = slices.Contains(checks, "-felix-ready") && !slices.ContainsFunc(checks, func(s string) bool { return strings.HasPrefix(s, "-bird") })
}

// schedule sets the rules of the scheduler, unless they were not kept: the API server sets
// schedulerName, and older releases of this program dropped it.
func (x *facts) schedule(spec *corev1.PodSpec) {
	if spec.SchedulerName == "" {
		return
	}
	s := &blocks.Scheduling{Requests: resourcesOf(helpers.PodRequests(&corev1.Pod{Spec: *spec}, helpers.PodResourcesOptions{}))}
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
	x.scheduling = s
}

// resourcesOf returns the resources of a list. Quantities that do not fit become the largest.
func resourcesOf(list corev1.ResourceList) blocks.Quantities {
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
