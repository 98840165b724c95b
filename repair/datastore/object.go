package datastore

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/calico-audit/calico-audit/blocks"
)

// object is a stored object: the bytes that the API server sent, and their tree. Numbers
// in the tree are [json.Number] so that no digit is lost.
type object struct {
	resource blocks.Resource
	raw      json.RawMessage
	tree     map[string]any
}

func parseObject(r blocks.Resource, raw []byte) (*object, error) {
	tree, err := parseTree(raw)
	if err != nil {
		return nil, fmt.Errorf("the answer is not an object: %w", err)
	}
	o := &object{resource: r, raw: raw, tree: tree}
	if o.name() == "" || o.uid() == "" || o.version() == "" {
		return nil, errors.New("the answer is not an object: it lacks name, uid or resourceVersion")
	}
	return o, nil
}

func parseTree(raw []byte) (map[string]any, error) {
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	var tree map[string]any
	if err := dec.Decode(&tree); err != nil {
		return nil, err
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("something follows the object")
	}
	if tree == nil {
		return nil, errors.New("it is null")
	}
	return tree, nil
}

// dig returns the value at a path of field names, and whether it exists.
func dig(tree any, path ...string) (any, bool) {
	for _, field := range path {
		m, ok := tree.(map[string]any)
		if !ok {
			return nil, false
		}
		if tree, ok = m[field]; !ok {
			return nil, false
		}
	}
	return tree, true
}

// textOf returns the string at a path, or "".
func textOf(tree any, path ...string) string {
	v, _ := dig(tree, path...)
	s, _ := v.(string)
	return s
}

func (o *object) text(path ...string) string { return textOf(o.tree, path...) }

// listAt returns the list at a path, or nil.
func listAt(tree any, path ...string) []any {
	v, _ := dig(tree, path...)
	list, _ := v.([]any)
	return list
}

// mapAt returns the map at a path, or nil.
func mapAt(tree any, path ...string) map[string]any {
	v, _ := dig(tree, path...)
	m, _ := v.(map[string]any)
	return m
}

// name returns the name, or "NAMESPACE/NAME" of a namespaced object.
func (o *object) name() string    { return nameOf(o.tree) }
func (o *object) uid() string     { return o.text("metadata", "uid") }
func (o *object) version() string { return o.text("metadata", "resourceVersion") }

func nameOf(tree any) string {
	name := textOf(tree, "metadata", "name")
	if namespace := textOf(tree, "metadata", "namespace"); namespace != "" && name != "" {
		return namespace + "/" + name
	}
	return name
}

// deleting reports whether the object is being deleted but still has finalizers.
func (o *object) deleting() bool { return o.text("metadata", "deletionTimestamp") != "" }

// String returns the object's name for messages.
func (o *object) String() string { return describe(o.resource, o.name()) }

// words holds the names of the kinds in messages.
var words = map[blocks.Resource]string{
	blocks.Blocks: "block", blocks.Affinities: "affinity", blocks.Handles: "handle", blocks.IPAMConfigs: "IPAM configuration", blocks.Reservations: "reservation",
	blocks.WhereaboutsPools: "pool", blocks.WhereaboutsReservations: "reservation",
}

func describe(r blocks.Resource, name string) string { return words[r] + " " + name }

// marked reports whether the object is marked deleted in spec.deleted. That is a string
// in affinities of the older API group, and otherwise a boolean.
func (o *object) marked() (bool, error) {
	v, ok := dig(o.tree, "spec", "deleted")
	if !ok || v == nil || v == "" {
		return false, nil
	}
	switch v := v.(type) {
	case bool:
		return v, nil
	case string:
		if b, err := strconv.ParseBool(v); err == nil {
			return b, nil
		}
	}
	return false, fmt.Errorf("spec.deleted of %s is %v, not a boolean", o, v)
}

// notMarked returns [repair.ErrChanged] if an object is marked deleted.
func notMarked(o *object) error {
	marked, err := o.marked()
	if err == nil && marked {
		err = changedf("%s is marked deleted", o)
	}
	return err
}

// cidr returns spec.cidr.
func (o *object) cidr() (netip.Prefix, error) {
	p, err := netip.ParsePrefix(o.text("spec", "cidr"))
	if err != nil {
		return p, fmt.Errorf("spec.cidr of %s is %q, not a CIDR", o, o.text("spec", "cidr"))
	}
	return p.Masked(), nil
}

// owner returns the owner of a block or affinity, or the zero value for a block without
// an owner.
func (o *object) owner() (blocks.Owner, error) {
	if o.resource == blocks.Affinities {
		kind, node := o.text("spec", "type"), o.text("spec", "node")
		if kind == "" {
			kind = string(blocks.HostOwner)
		}
		if node == "" {
			return blocks.Owner{}, fmt.Errorf("spec.node of %s is missing", o)
		}
		return blocks.Owner{Kind: blocks.OwnerKind(kind), Name: node}, nil
	}
	v, ok := dig(o.tree, "spec", "affinity")
	if !ok || v == nil {
		return blocks.Owner{}, nil
	}
	s, ok := v.(string)
	if !ok {
		return blocks.Owner{}, fmt.Errorf("spec.affinity of %s is %v, not a text", o, v)
	}
	return blocks.ParseOwner(s), nil
}

// state returns an affinity's state as stored.
func (o *object) state() blocks.AffinityState { return blocks.AffinityState(o.text("spec", "state")) }

// content lists the parts of an object that do not depend on its writer and the time of
// writing.
var content = [][]string{{"spec"}, {"metadata", "labels"}, {"metadata", "annotations"}}

// sameContent reports whether an object has exactly the content of a tree.
func (o *object) sameContent(tree map[string]any) bool {
	return !slices.ContainsFunc(content, func(path []string) bool {
		a, _ := dig(o.tree, path...)
		b, _ := dig(tree, path...)
		return !reflect.DeepEqual(a, b)
	})
}

// holds reports whether an object has all content of a tree. The API server may have
// added defaults.
func (o *object) holds(tree map[string]any) bool {
	for _, path := range content {
		have := mapAt(o.tree, path...)
		for field, v := range mapAt(tree, path...) {
			if got, ok := have[field]; !ok || !reflect.DeepEqual(got, v) {
				return false
			}
		}
	}
	return true
}

// writtenBy reports whether a manager is in the object's managedFields.
func (o *object) writtenBy(manager string) bool {
	return slices.ContainsFunc(listAt(o.tree, "metadata", "managedFields"), func(e any) bool { return textOf(e, "manager") == manager })
}

// finalizers returns the finalizers that delay the object's deletion.
func (o *object) finalizers() string {
	var names []string
	for _, f := range listAt(o.tree, "metadata", "finalizers") {
		names = append(names, fmt.Sprint(f))
	}
	return strings.Join(names, ", ")
}
