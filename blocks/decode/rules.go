package decode

import (
	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/blocks/decode/podspec"
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
		&fieldMask{key: "env", num: 7, schema: schemaList, parts: []*fieldMask{variable(classStub)}, by: variables},
		object("resources", 8, quantities("requests", 2)), value("restartPolicy", 24, classWord))
)

// variables are the environment variables that are read, of calico-node. Felix's override the
// FelixConfiguration (felix/config, Source).
var variables = map[string]*fieldMask{
	blocks.FelixVXLANPort: variable(classWord), blocks.FelixVXLANVNI: variable(classWord), blocks.FelixVXLAN: variable(classWord), blocks.FelixIPIP: variable(classWord),
	blocks.DetectIPv4: variable(classStub), blocks.DetectIPv6: variable(classStub), blocks.PoolCIDRv4: variable(classAddresses), blocks.PoolCIDRv6: variable(classAddresses),
}

func variable(c class) *fieldMask {
	return object("", 0, value("name", 1, classWord), value("value", 2, c))
}

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

// factsOf returns what rules mean. Pods with equal rules share it.
func (d *Decoder) factsOf(r *JSONReader, text []byte) *podspec.Facts {
	x := shared(d.Strings, &d.Strings.facts, text, func() *podspec.Facts { return podspec.Parse(text) })
	if x.Fault != "" {
		r.faultAt(x.Fault, x.Reason)
	}
	return x
}
