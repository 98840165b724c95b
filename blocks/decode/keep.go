package decode

import (
	"bytes"

	apiv3 "github.com/projectcalico/api/pkg/apis/projectcalico/v3"

	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/blocks/decode/parse"
)

func timeField(key string, num int) *parse.Mask {
	return &parse.Mask{Key: key, Num: num, Schema: parse.SchemaTime, Class: classTime}
}

// metaMask selects the saved metadata. It keeps managedFields only for kinds whose decoders read
// them.
func metaMask(name class, managed bool, extra ...*parse.Mask) *parse.Mask {
	parts := []*parse.Mask{
		parse.Value("name", 1, name),
		parse.Value("namespace", 3, classNamespace),
		parse.Value("uid", 5, classUID),
		parse.Value("resourceVersion", 6, classWord),
		timeField("creationTimestamp", 8),
		timeField("deletionTimestamp", 9),
	}
	if managed {
		parts = append(parts, parse.List("managedFields", 17, parse.Object("", 0,
			parse.Value("manager", 1, classManager),
			parse.Value("operation", 2, classWord),
			parse.Value("subresource", 8, classWord),
			timeField("time", 4),
		)))
	}
	return parse.Object("metadata", 1, append(parts, extra...)...)
}

// calicoAnnotation reports whether an annotation or label belongs to Calico or to this
// program. It excludes Calico's copy of the metadata, which repeats the annotations of
// others.
func calicoAnnotation(key []byte) bool {
	domain, name, found := bytes.Cut(key, []byte("/"))
	return string(key) == blocks.OursAnnotation || found && (string(domain) == "projectcalico.org" || bytes.HasSuffix(domain, []byte(".projectcalico.org"))) && string(name) != "metadata"
}

// ownersMask keeps owner references, by the owner's kind.
func ownersMask(by map[string]*parse.Mask) *parse.Mask {
	return &parse.Mask{Key: "ownerReferences", Num: 13, Schema: parse.SchemaList, Parts: []*parse.Mask{vmOwner}, By: by}
}

// ownerMask keeps an owner reference.
func ownerMask(name class, more ...*parse.Mask) *parse.Mask {
	return parse.Object("", 0, append(more, parse.Value("kind", 1, classWord), parse.Value("name", 3, name), parse.Value("uid", 4, classUID),
		&parse.Mask{Key: "controller", Num: 6, Schema: parse.SchemaBool, Class: classNumber})...)
}

var (
	vmOwner    = ownerMask(classVM, parse.Value("apiVersion", 5, classOwnerVersion))
	otherOwner = parse.Requiring(`"controller":true`, ownerMask(classController))
)

func annotations(classes map[string]class) *parse.Mask {
	return &parse.Mask{Key: "annotations", Num: 12, Schema: parse.SchemaMap, Wants: calicoAnnotation, Classes: classes}
}

var (
	allLabels    = &parse.Mask{Key: "labels", Num: 11, Schema: parse.SchemaMap, Class: classLabel}
	calicoLabels = &parse.Mask{Key: "labels", Schema: parse.SchemaMap, Wants: calicoAnnotation, Classes: map[string]class{apiv3.LabelHostnameHash: classStub, apiv3.LabelAffinityType: classWord}}
)

// calicoObject returns the mask of a Calico object. spec lists the fields that the decoder
// reads.
func calicoObject(name class, spec ...*parse.Mask) *parse.Mask {
	s := parse.Object("spec", 0, spec...)
	s.Whole = true
	return parse.Object("", 0, metaMask(name, true, calicoLabels, annotations(map[string]class{blocks.OursAnnotation: classStub})), s)
}
