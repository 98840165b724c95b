package decode

import (
	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/blocks/decode/keep"
	"github.com/calico-audit/calico-audit/blocks/decode/parse"
)

// rulesMask keeps the members of a pod's spec that become its [blocks.Placement], its
// [blocks.Scheduling], and other facts that the pods of a controller share.
var (
	rulesMask = parse.Object("", 0,
		&parse.Mask{Key: "nodeSelector", Num: 7, Schema: parse.SchemaMap, Class: keep.Label},
		affinityMask,
		parse.List("tolerations", 22, parse.Object("", 0, parse.Value("key", 1, keep.Taint), parse.Value("operator", 2, keep.Word), parse.Value("value", 3, keep.LabelValue), parse.Value("effect", 4, keep.Word))),
		parse.Value("schedulerName", 19, keep.Word), parse.Value("restartPolicy", 3, keep.Word),
		parse.List("containers", 2, container), parse.List("initContainers", 20, container),
		quantities("overhead", 32), parse.Object("resources", 40, quantities("requests", 2)),
		parse.List("topologySpreadConstraints", 33, parse.Object("", 0, parse.Value("whenUnsatisfiable", 3, keep.Word))),
		parse.List("schedulingGates", 38, parse.Object("", 0)), parse.List("resourceClaims", 39, parse.Object("", 0)), parse.Object("schedulingGroup", 43),
		parse.List("volumes", 1, parse.Requiring(":", parse.Object("", 0, parse.Object("", 2, parse.Object("emptyDir", 2), parse.Object("persistentVolumeClaim", 10), parse.Object("ephemeral", 29),
			parse.Object("hostPath", 1), parse.Object("gcePersistentDisk", 3), parse.Object("awsElasticBlockStore", 4), parse.Object("iscsi", 8), parse.Object("rbd", 11), parse.Object("cinder", 13),
			parse.Object("fc", 17), parse.Object("vsphereVolume", 20), parse.Object("azureDisk", 22), parse.Object("portworxVolume", 24), parse.Object("csi", 28))))))
	affinityMask = parse.Object("affinity", 18, parse.Object("nodeAffinity", 1, parse.Object("requiredDuringSchedulingIgnoredDuringExecution", 1,
		parse.List("nodeSelectorTerms", 1, parse.Object("", 0,
			parse.List("matchExpressions", 1, requirement(keep.LabelValue)),
			parse.List("matchFields", 2, requirement(keep.Node)))))), podTerms("podAffinity", 2), podTerms("podAntiAffinity", 3))
	container = parse.Object("", 0, probe("livenessProbe", 10), probe("readinessProbe", 11),
		parse.List("ports", 6, parse.Requiring(":", parse.Object("", 0, &parse.Mask{Key: "hostPort", Num: 2, Schema: parse.SchemaNumber, Class: keep.Number}))),
		&parse.Mask{Key: "env", Num: 7, Schema: parse.SchemaList, Parts: []*parse.Mask{variable(keep.Stub)}, By: variables},
		parse.Object("resources", 8, quantities("requests", 2)), parse.Value("restartPolicy", 24, keep.Word))
)

// variables are the environment variables that are read, of calico-node. Felix's override the
// FelixConfiguration (felix/config, Source).
var variables = map[string]*parse.Mask{
	blocks.FelixVXLANPort: variable(keep.Word), blocks.FelixVXLANVNI: variable(keep.Word), blocks.FelixVXLAN: variable(keep.Word), blocks.FelixIPIP: variable(keep.Word),
	blocks.DetectIPv4: variable(keep.Stub), blocks.DetectIPv6: variable(keep.Stub), blocks.PoolCIDRv4: variable(keep.Addresses), blocks.PoolCIDRv6: variable(keep.Addresses),
}

func variable(c keep.Class) *parse.Mask {
	return parse.Object("", 0, parse.Value("name", 1, keep.Word), parse.Value("value", 2, c))
}

func requirement(values keep.Class) *parse.Mask {
	return parse.Object("", 0, parse.Value("key", 1, keep.LabelKey), parse.Value("operator", 2, keep.Word), parse.List("values", 3, parse.Value("", 3, values)))
}

func quantities(key string, num int) *parse.Mask {
	return &parse.Mask{Key: key, Num: num, Schema: parse.SchemaQuantities, Class: keep.Quantity}
}

// podTerms keeps a pod's required affinity or anti-affinity to other pods.
func podTerms(key string, num int) *parse.Mask {
	return parse.Object(key, num, parse.List("requiredDuringSchedulingIgnoredDuringExecution", 1, parse.Object("", 0,
		parse.Object("labelSelector", 1, &parse.Mask{Key: "matchLabels", Num: 1, Schema: parse.SchemaMap, Class: keep.Label}, parse.List("matchExpressions", 2, requirement(keep.LabelValue))),
		parse.List("namespaces", 2, parse.Value("", 2, keep.Namespace)), parse.Object("namespaceSelector", 4))))
}

// probe keeps the names of the checks that a container's probe runs.
func probe(key string, num int) *parse.Mask {
	return parse.Object(key, num, parse.Object("", 1, parse.Object("exec", 1, parse.List("command", 1, parse.Requiring(`"-`, parse.Value("", 1, keep.Word))))))
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
				*to = append(keep.Append(append(keep.AppendText(append(*to, `"affinity":{`...), key), ':'), r, mask, nil), "},"...)
			}
		})
		return
	case "nodeSelector":
		to = &p.where
	case "tolerations":
		to = &p.tolerates
	}
	if mask != nil {
		*to = append(keep.Append(append(keep.AppendText(*to, key), ':'), r, mask, nil), ',')
	}
}
