package decode

import (
	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/blocks/decode/parse"
	"github.com/calico-audit/calico-audit/blocks/decode/podspec"
)

// rulesMask keeps the members of a pod's spec that become its [blocks.Placement], its
// [blocks.Scheduling], and other facts that the pods of a controller share.
var (
	rulesMask = parse.Object("", 0,
		&parse.Mask{Key: "nodeSelector", Num: 7, Schema: parse.SchemaMap, Class: classLabel},
		affinityMask,
		parse.List("tolerations", 22, parse.Object("", 0, parse.Value("key", 1, classTaint), parse.Value("operator", 2, classWord), parse.Value("value", 3, classLabelValue), parse.Value("effect", 4, classWord))),
		parse.Value("schedulerName", 19, classWord), parse.Value("restartPolicy", 3, classWord),
		parse.List("containers", 2, container), parse.List("initContainers", 20, container),
		quantities("overhead", 32), parse.Object("resources", 40, quantities("requests", 2)),
		parse.List("topologySpreadConstraints", 33, parse.Object("", 0, parse.Value("whenUnsatisfiable", 3, classWord))),
		parse.List("schedulingGates", 38, parse.Object("", 0)), parse.List("resourceClaims", 39, parse.Object("", 0)), parse.Object("schedulingGroup", 43),
		parse.List("volumes", 1, parse.Requiring(":", parse.Object("", 0, parse.Object("", 2, parse.Object("emptyDir", 2), parse.Object("persistentVolumeClaim", 10), parse.Object("ephemeral", 29),
			parse.Object("hostPath", 1), parse.Object("gcePersistentDisk", 3), parse.Object("awsElasticBlockStore", 4), parse.Object("iscsi", 8), parse.Object("rbd", 11), parse.Object("cinder", 13),
			parse.Object("fc", 17), parse.Object("vsphereVolume", 20), parse.Object("azureDisk", 22), parse.Object("portworxVolume", 24), parse.Object("csi", 28))))))
	affinityMask = parse.Object("affinity", 18, parse.Object("nodeAffinity", 1, parse.Object("requiredDuringSchedulingIgnoredDuringExecution", 1,
		parse.List("nodeSelectorTerms", 1, parse.Object("", 0,
			parse.List("matchExpressions", 1, requirement(classLabelValue)),
			parse.List("matchFields", 2, requirement(classNode)))))), podTerms("podAffinity", 2), podTerms("podAntiAffinity", 3))
	container = parse.Object("", 0, probe("livenessProbe", 10), probe("readinessProbe", 11),
		parse.List("ports", 6, parse.Requiring(":", parse.Object("", 0, &parse.Mask{Key: "hostPort", Num: 2, Schema: parse.SchemaNumber, Class: classNumber}))),
		&parse.Mask{Key: "env", Num: 7, Schema: parse.SchemaList, Parts: []*parse.Mask{variable(classStub)}, By: variables},
		parse.Object("resources", 8, quantities("requests", 2)), parse.Value("restartPolicy", 24, classWord))
)

// variables are the environment variables that are read, of calico-node. Felix's override the
// FelixConfiguration (felix/config, Source).
var variables = map[string]*parse.Mask{
	blocks.FelixVXLANPort: variable(classWord), blocks.FelixVXLANVNI: variable(classWord), blocks.FelixVXLAN: variable(classWord), blocks.FelixIPIP: variable(classWord),
	blocks.DetectIPv4: variable(classStub), blocks.DetectIPv6: variable(classStub), blocks.PoolCIDRv4: variable(classAddresses), blocks.PoolCIDRv6: variable(classAddresses),
}

func variable(c class) *parse.Mask {
	return parse.Object("", 0, parse.Value("name", 1, classWord), parse.Value("value", 2, c))
}

func requirement(values class) *parse.Mask {
	return parse.Object("", 0, parse.Value("key", 1, classLabelKey), parse.Value("operator", 2, classWord), parse.List("values", 3, parse.Value("", 3, values)))
}

func quantities(key string, num int) *parse.Mask {
	return &parse.Mask{Key: key, Num: num, Schema: parse.SchemaQuantities, Class: classQuantity}
}

// podTerms keeps a pod's required affinity or anti-affinity to other pods.
func podTerms(key string, num int) *parse.Mask {
	return parse.Object(key, num, parse.List("requiredDuringSchedulingIgnoredDuringExecution", 1, parse.Object("", 0,
		parse.Object("labelSelector", 1, &parse.Mask{Key: "matchLabels", Num: 1, Schema: parse.SchemaMap, Class: classLabel}, parse.List("matchExpressions", 2, requirement(classLabelValue))),
		parse.List("namespaces", 2, parse.Value("", 2, classNamespace)), parse.Object("namespaceSelector", 4))))
}

// probe keeps the names of the checks that a container's probe runs.
func probe(key string, num int) *parse.Mask {
	return parse.Object(key, num, parse.Object("", 1, parse.Object("exec", 1, parse.List("command", 1, parse.Requiring(`"-`, parse.Value("", 1, classWord))))))
}

// rules collects members of a pod's spec, as rulesMask keeps them, as JSON. Pods with equal JSON share
// their facts. The pods of a DaemonSet differ in where only.
type rules struct{ where, tolerates, others []byte }

// add reads a member of the spec.
func (p *rules) add(key []byte, r *parse.Reader) {
	mask, to := rulesMask.Member(key), &p.others
	switch string(key) {
	case "affinity":
		r.Object(func(key []byte) {
			if mask, to := affinityMask.Member(key), &p.others; mask != nil {
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

// factsOf returns what rules mean. Pods with equal rules share it.
func (d *Decoder) factsOf(r *parse.Reader, text []byte) *podspec.Facts {
	x := shared(d.Strings, &d.Strings.facts, text, func() *podspec.Facts { return podspec.Parse(text) })
	if x.Fault != "" {
		r.FaultAt(x.Fault, x.Reason)
	}
	return x
}
