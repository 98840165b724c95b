package etcd

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	apiv3 "github.com/projectcalico/api/pkg/apis/projectcalico/v3"
	"go.etcd.io/etcd/api/v3/mvccpb"
	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	"k8s.io/apimachinery/pkg/util/uuid"

	"github.com/calico-audit/calico-audit/blocks"
)

// Ranges returns the prefixes of the keys of a resource, or its only key.
func Ranges(r blocks.Resource) (out []string) {
	for _, s := range stores {
		if s.resource == r {
			out = append(out, s.key)
		}
	}
	return out
}

// Keys returns the keys that an object of a name may have. There are several for an affinity,
// because its name shows neither where the node's name ends nor the owner's kind. A name without a
// key, such as one that Calico would have shortened, is an error.
func Keys(r blocks.Resource, name string) (out []string, err error) {
	switch r {
	case blocks.Blocks:
		if cidr := blocks.PrefixOfName(name); cidr.IsValid() {
			out = append(out, ipamPrefix+"assignment"+inKey(cidr))
		}
	case blocks.Affinities:
		for i := range name {
			if name[i] != '-' {
				continue
			}
			if cidr := blocks.PrefixOfName(name[i+1:]); cidr.IsValid() && blocks.AffinityName(name[:i], cidr) == name {
				out = append(out, affinityKey(blocks.HostOwner, name[:i], cidr), affinityKey(blocks.VirtualOwner, name[:i], cidr))
			}
		}
	default:
		for _, prefix := range Ranges(r) {
			if strings.HasSuffix(prefix, "/") {
				prefix += name
			}
			out = append(out, prefix)
		}
	}
	if len(out) == 0 {
		err = fmt.Errorf("no key of etcd belongs to the name %q", name)
	}
	return out, err
}

func inKey(cidr blocks.Prefix) string {
	version := 4
	if cidr.Addr().Is6() {
		version = 6
	}
	return fmt.Sprintf("/ipv%d/block/%s", version, strings.Replace(cidr.Masked().String(), "/", "-", 1))
}

func affinityKey(kind blocks.OwnerKind, owner string, cidr blocks.Prefix) string {
	return ipamPrefix + string(kind) + "/" + owner + inKey(cidr)
}

// Object returns the object of a key; ok is false if the key holds none of the resource. by, if not
// zero, is the time at which this program wrote it. A value that cannot be parsed is an error.
func Object(r blocks.Resource, kv *mvccpb.KeyValue, by time.Time) (text []byte, ok bool, err error) {
	for _, s := range stores {
		if s.resource != r || !strings.HasPrefix(string(kv.Key), s.key) {
			continue
		}
		o, ok := s.object(s, kv)
		switch {
		case !ok:
			return nil, false, nil
		case o.unread != "":
			return nil, false, fmt.Errorf("%s: %s", kv.Key, o.unread)
		}
		if !by.IsZero() {
			o.ManagedFields = byUs(by)
		}
		return o.json(r), true, nil
	}
	return nil, false, nil
}

// derived are the members of a spec that are not in the value: the key has them, or they are not
// stored at all.
var derived = map[blocks.Resource][]string{
	blocks.Blocks: {"strictAffinity"}, blocks.Affinities: {"cidr", "node", "type"}, blocks.Handles: {"handleID"}, blocks.IPAMConfigs: {},
}

// Stored returns the key and the value of an object to create, as libcalico-go stores it. An object
// of Calico's v3 API gets a UID and the time of its creation.
func Stored(r blocks.Resource, text []byte, now time.Time) (key string, value []byte, err error) {
	var o struct {
		Kind     string                     `json:"kind"`
		Metadata metadata                   `json:"metadata"`
		Spec     map[string]json.RawMessage `json:"spec"`
	}
	if err := json.Unmarshal(text, &o); err != nil {
		return "", nil, err
	}
	var spec struct{ CIDR, Node, Type, HandleID string }
	if in, err := json.Marshal(o.Spec); err != nil {
		return "", nil, err
	} else if err := json.Unmarshal(in, &spec); err != nil {
		return "", nil, err
	}
	cidr, ofCIDR := blocks.ParseCIDR(spec.CIDR)
	switch {
	case r == blocks.Blocks && ofCIDR:
		key = ipamPrefix + "assignment" + inKey(cidr)
		if string(o.Spec["attributes"]) == "[]" {
			o.Spec["attributes"] = []byte("null")
		}
	case r == blocks.Affinities && ofCIDR && spec.Node != "":
		key = affinityKey(blocks.OwnerKind(spec.Type), spec.Node, cidr)
		o.Spec["deleted"] = []byte("false") // text in an object, but not in a value
	case r == blocks.Handles && spec.HandleID != "":
		key = ipamPrefix + "handle/" + spec.HandleID
	case r == blocks.IPAMConfigs:
		key = ipamPrefix + "config"
		for in, name := range configFields {
			if field, set := o.Spec[name]; set {
				o.Spec[in] = field
				delete(o.Spec, name)
			}
		}
	case r == blocks.Reservations && o.Metadata.Name != "":
		m := metadata{Name: o.Metadata.Name, UID: string(uuid.NewUUID()), CreationTimestamp: now.UTC().Format(time.RFC3339), Labels: o.Metadata.Labels, Annotations: o.Metadata.Annotations}
		value, err = json.Marshal(map[string]any{"apiVersion": apiv3.GroupVersionCurrent, "kind": o.Kind, "metadata": m, "spec": o.Spec})
		return Ranges(r)[0] + m.Name, value, err
	default:
		return "", nil, fmt.Errorf("an object of %s is not created like this", r)
	}
	for _, name := range derived[r] {
		delete(o.Spec, name)
	}
	value, err = json.Marshal(o.Spec)
	return key, value, err
}

// Edit applies a JSON patch of an object to its stored value. Members that the patch does not name
// stay. The transaction makes the patch's tests of uid and resourceVersion.
func Edit(r blocks.Resource, value, patch []byte) ([]byte, error) {
	var ops []map[string]json.RawMessage
	if err := json.Unmarshal(patch, &ops); err != nil {
		return nil, err
	}
	fields, ofIPAM := derived[r]
	var kept []map[string]json.RawMessage
	for _, op := range ops {
		var path string
		if err := json.Unmarshal(op["path"], &path); err != nil {
			return nil, err
		}
		if path == "/metadata/uid" || path == "/metadata/resourceVersion" {
			continue
		}
		if ofIPAM {
			name, ok := strings.CutPrefix(path, "/spec/")
			first, rest, _ := strings.Cut(name, "/")
			if !ok || slices.Contains(fields, first) {
				return nil, errors.New(path + " is not part of the value")
			}
			for in, field := range configFields {
				if r == blocks.IPAMConfigs && field == first {
					first = in
				}
			}
			op["path"], _ = json.Marshal(strings.TrimSuffix("/"+first+"/"+rest, "/")) // texts always marshal
		}
		kept = append(kept, op)
	}
	text, err := json.Marshal(kept)
	if err != nil {
		return nil, err
	}
	all, err := jsonpatch.DecodePatch(text)
	if err != nil {
		return nil, err
	}
	return all.Apply(value)
}
