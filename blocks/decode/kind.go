package decode

import (
	"cmp"
	"fmt"
	"net/url"
	"strings"

	apiv3 "github.com/projectcalico/api/pkg/apis/projectcalico/v3"

	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/blocks/decode/parse"
	"github.com/calico-audit/calico-audit/blocks/decode/protobuf"
)

// The two API groups of Calico's objects, with their versions. Calico's code has no
// constant for the older, which the CRDs under libcalico-go/config/crd use.
const (
	GroupCRD    = "crd.projectcalico.org/v1"
	GroupNative = apiv3.GroupVersionCurrent
)

// A Kind describes a kind of object that an audit reads. Code that handles any kind depends
// only on this description.
type Kind struct {
	Resource blocks.Resource
	// Names are the values of the field kind: one, or two if the API groups differ.
	Names []string
	// nativePlural is the plural in the newer API group, if it differs.
	nativePlural string
	// Core kinds are Kubernetes' own. version is their API version; empty means "v1".
	Core    bool
	version string
	// Foreign is the API group and version of kinds that belong neither to Kubernetes nor
	// to Calico. They are optional.
	Foreign string
	// Named kinds are read by metadata only.
	Named bool
	// Beside is an API group and version; the kind is listed only if they are served. Empty means
	// always.
	Beside string
	// Namespaced kinds may have objects of the same name in several namespaces.
	Namespaced bool
	// Optional kinds may be absent: older releases of Calico do not have them, or a cluster
	// does not need them.
	Optional bool
	// ByNode kinds are bound to nodes, and can be read again by node or label.
	ByNode bool
	// Absent explains why files without objects of the kind (or an empty List) are
	// incomplete. It returns "" if no verdict about the snapshot needs the kind. If Absent
	// is nil, missing objects are assumed not to exist in the cluster.
	Absent func(*blocks.Snapshot) string
	// LeftOut explains why files that hold some objects of the kind lack others that exist: a list
	// was filtered by namespace, node or label. It returns "" if nothing shows that.
	LeftOut func(*blocks.Snapshot) string
	// Lasts names an object that lives as long as its cluster. If files hold two, by their UIDs,
	// they are of two clusters.
	Lasts string
	// tolerates reports whether an object is kept although the given field is unreadable
	// ([blocks.Gap.Tolerated]); nil means never.
	tolerates func(field string) bool
	// keeps selects the saved fields of an object, and controls their anonymization.
	keeps *parse.Mask
	// labelled replaces keeps if labels are needed. Saved snapshots have no labels.
	labelled *parse.Mask
	// always are the members of a spec that every stored object has, because the CRD requires them
	// (libcalico-go config/crd) and Calico's clients write them. A dump without one was filtered.
	always []string
	// Only Calico's IPAM makes objects of Record kinds; no one writes manifests of them.
	Record bool
	// Single kinds have only one effective object, named "default". keepsOthers is true if records
	// of other objects are kept as well.
	Single, keepsOthers bool
	// Selector is the field selector of the list. The list is only read if a verdict asks for it.
	Selector string

	// The following are set by describe, from a descriptor.

	// JSON decodes the current object of a reader.
	JSON func(*Decoder, *parse.Reader)
	// none returns an empty list of records.
	none func() records
	// store returns an empty store for records.
	store func() storedRecords
}

// always is [Kind.Absent] for a kind that every verdict needs.
func always(reason string) func(*blocks.Snapshot) string {
	return func(*blocks.Snapshot) string { return reason }
}

// OfCalico reports whether the objects are Calico's own, in one of its two API groups.
func (k *Kind) OfCalico() bool { return !k.Core && k.Foreign == "" }

// protobuf reports whether the API server encodes the kind's objects, or the metadata read,
// as protobuf.
func (k *Kind) protobuf() bool { return k.Core && k.version == "" || k.Named }

// Version returns the API version of the kind. group is the API group of Calico's objects.
func (k *Kind) Version(group string) string {
	switch {
	case k.Core:
		return cmp.Or(k.version, "v1")
	case k.Foreign != "":
		return k.Foreign
	}
	return group
}

// metadataOnly is the media type parameter that requests only the metadata of objects.
const metadataOnly = ";as=PartialObjectMetadata%s;g=meta.k8s.io;v=v1"

// Accept returns the Accept header for a list ("List") or a single object ("").
func (k *Kind) Accept(list string) string {
	switch {
	case k.Named:
		as := fmt.Sprintf(metadataOnly, list)
		return protobuf.MediaType + as + ",application/json" + as + ",application/json"
	case k.protobuf():
		return protobuf.MediaType + ",application/json"
	}
	return "application/json"
}

// Plural returns the plural of the kind in an API group.
func (k *Kind) Plural(group string) string {
	if group == GroupNative && k.nativePlural != "" {
		return k.nativePlural
	}
	plural, _, _ := strings.Cut(string(k.Resource), ".")
	return plural
}

// Path returns the API server's path for the kind's objects in a namespace, or in all
// namespaces if it is empty. group is the API group of Calico's objects.
func (k *Kind) Path(group, namespace string) string {
	path := "/apis/" + k.Version(group)
	if k.Version(group) == "v1" {
		path = "/api/v1"
	}
	if namespace != "" {
		path += "/namespaces/" + url.PathEscape(namespace)
	}
	return path + "/" + k.Plural(group)
}

// RBAC returns the resource and API group of the kind in a role. group is the API group of
// Calico's objects.
func (k *Kind) RBAC(group string) (resource, apiGroup string) {
	if of, _, named := strings.Cut(k.Version(group), "/"); named {
		apiGroup = of
	}
	return k.Plural(group), apiGroup
}

// Name returns the field kind of objects in an API group.
func (k *Kind) Name(version string) string {
	if version == GroupNative {
		return k.Names[len(k.Names)-1]
	}
	return k.Names[0]
}

// records is a list of records of one type.
type records interface {
	Len() int
	// At returns the key and the metadata of a record.
	At(i int) (blocks.Key, *blocks.Meta)
	// Only drops the records for which keep returns false; Truncate keeps the first n.
	Only(keep func(i int) bool)
	Truncate(n int)
	// Grow reserves space for n more records.
	Grow(n int)
	// join appends a list of the same type.
	join(records)
	// Less and Swap implement sort.Interface for the canonical order.
	Less(i, j int) bool
	Swap(i, j int)
	// Take replaces the list by the records of a snapshot; Fill stores the list in a snapshot. Both
	// share memory. For a single kind, Take skips the object named "default".
	Take(*blocks.Snapshot)
	Fill(*blocks.Snapshot)
}

// storedRecords holds the records of a kind for a watch.
type storedRecords interface {
	replaceAll(records)
	// has reports whether the stored record equals the last given record, ignoring its version and
	// last write. Without given records, it reports whether nothing is stored.
	has(blocks.Key, records) bool
	put(blocks.Key, records)
	Fill(*blocks.Snapshot)
	Len() int
}
