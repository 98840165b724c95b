package keep

import (
	"bytes"

	apiv3 "github.com/projectcalico/api/pkg/apis/projectcalico/v3"

	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/blocks/decode/parse"
)

// TimeField keeps a time.
func TimeField(key string, num int) *parse.Mask {
	return &parse.Mask{Key: key, Num: num, Schema: parse.SchemaTime, Class: Time}
}

// Meta selects the saved metadata. It keeps managedFields only for kinds whose decoders read
// them.
func Meta(name Class, managed bool, extra ...*parse.Mask) *parse.Mask {
	parts := []*parse.Mask{
		parse.Value("name", 1, name),
		parse.Value("namespace", 3, Namespace),
		parse.Value("uid", 5, UID),
		parse.Value("resourceVersion", 6, Word),
		TimeField("creationTimestamp", 8),
		TimeField("deletionTimestamp", 9),
	}
	if managed {
		parts = append(parts, parse.List("managedFields", 17, parse.Object("", 0,
			parse.Value("manager", 1, Manager),
			parse.Value("operation", 2, Word),
			parse.Value("subresource", 8, Word),
			TimeField("time", 4),
		)))
	}
	return parse.Object("metadata", 1, append(parts, extra...)...)
}

// OfCalico reports whether an annotation or label belongs to Calico or to this
// program. It excludes Calico's copy of the metadata, which repeats the annotations of
// others.
func OfCalico(key []byte) bool {
	domain, name, found := bytes.Cut(key, []byte("/"))
	return string(key) == blocks.OursAnnotation || found && (string(domain) == "projectcalico.org" || bytes.HasSuffix(domain, []byte(".projectcalico.org"))) && string(name) != "metadata"
}

// OwnerReferences keeps owner references, by the owner's kind.
func OwnerReferences(by map[string]*parse.Mask) *parse.Mask {
	return &parse.Mask{Key: "ownerReferences", Num: 13, Schema: parse.SchemaList, Parts: []*parse.Mask{OfVM}, By: by}
}

// OwnerReference keeps an owner reference.
func OwnerReference(name Class, more ...*parse.Mask) *parse.Mask {
	return parse.Object("", 0, append(more, parse.Value("kind", 1, Word), parse.Value("name", 3, name), parse.Value("uid", 4, UID),
		&parse.Mask{Key: "controller", Num: 6, Schema: parse.SchemaBool, Class: Number})...)
}

var (
	// OfVM keeps a reference to a virtual machine.
	OfVM = OwnerReference(VM, parse.Value("apiVersion", 5, OwnerVersion))
	// OfController keeps the reference to an object's controller, and no other.
	OfController = parse.Requiring(`"controller":true`, OwnerReference(Controller))
)

// Annotations keeps the annotations of Calico and of this program, and those with a class.
func Annotations(classes map[string]Class) *parse.Mask {
	return &parse.Mask{Key: "annotations", Num: 12, Schema: parse.SchemaMap, Wants: OfCalico, Classes: classes}
}

var (
	// AllLabels keeps all labels.
	AllLabels = &parse.Mask{Key: "labels", Num: 11, Schema: parse.SchemaMap, Class: Label}
	// CalicoLabels keeps only the labels of Calico, and the one of a pool's manager.
	CalicoLabels = &parse.Mask{Key: "labels", Schema: parse.SchemaMap, Wants: func(key []byte) bool { return OfCalico(key) || string(key) == blocks.ManagedBy },
		Classes: map[string]Class{apiv3.LabelHostnameHash: Stub, apiv3.LabelAffinityType: Word, blocks.ManagedBy: Word}}
)

// CalicoObject returns the mask of a Calico object. spec lists the fields that the decoder
// reads.
func CalicoObject(name Class, spec ...*parse.Mask) *parse.Mask {
	s := parse.Object("spec", 0, spec...)
	s.Whole = true
	return parse.Object("", 0, Meta(name, true, CalicoLabels, Annotations(map[string]Class{blocks.OursAnnotation: Stub})), s)
}
