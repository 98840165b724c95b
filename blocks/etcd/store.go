package etcd

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	apiv3 "github.com/projectcalico/api/pkg/apis/projectcalico/v3"
	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/blocks/decode"
)

// A store is a range of keys that hold objects of one kind (libcalico-go lib/backend/model).
type store struct {
	resource blocks.Resource
	// key is the prefix of the keys, ending in a slash, or the only key.
	key string
	// take adds the object of a key to a reading.
	take func(*Reading, store, *mvccpb.KeyValue)
	// later is true if the objects must first be joined with those of Kubernetes.
	later bool
}

// The prefixes of Calico's keys.
const (
	ipamPrefix     = "/calico/ipam/v2/"
	resourcePrefix = "/calico/resources/v3/projectcalico.org/"
)

// stores lists what is read. A role for reading needs these ranges and no others.
var stores = []store{
	{resource: blocks.Blocks, key: ipamPrefix + "assignment/", take: takeBlock},
	{resource: blocks.Affinities, key: ipamPrefix + string(blocks.HostOwner) + "/", take: takeAffinity},
	{resource: blocks.Affinities, key: ipamPrefix + string(blocks.VirtualOwner) + "/", take: takeAffinity},
	{resource: blocks.Handles, key: ipamPrefix + "handle/", take: takeHandle},
	{resource: blocks.IPAMConfigs, key: ipamPrefix + "config", take: takeConfig},
	ofV3(blocks.Pools), ofV3(blocks.Reservations), ofV3(blocks.ClusterInfos), ofV3(blocks.ControllerConfig), ofV3(blocks.FelixConfigs),
	ofV3(blocks.BGPConfigs), ofV3(blocks.BGPPeers), ofV3(blocks.BGPFilters),
	{resource: blocks.Nodes, key: resourcePrefix + "nodes/", take: takeNode, later: true},
	{resource: blocks.Pods, key: resourcePrefix + "workloadendpoints/", take: takeWorkloadEndpoint, later: true},
	{resource: blocks.Pods, key: resourcePrefix + "hostendpoints/", take: takeHostEndpoint, later: true},
}

// ofV3 returns the store of a kind whose values are objects of Calico's v3 API.
func ofV3(res blocks.Resource) store {
	return store{resource: res, key: resourcePrefix + string(res) + "/", take: takeObject}
}

// metadata is the metadata of an object.
type metadata struct {
	Name              string            `json:"name"`
	Namespace         string            `json:"namespace,omitempty"`
	UID               string            `json:"uid,omitempty"`
	ResourceVersion   string            `json:"resourceVersion,omitempty"`
	CreationTimestamp string            `json:"creationTimestamp,omitempty"`
	DeletionTimestamp string            `json:"deletionTimestamp,omitempty"`
	Labels            map[string]string `json:"labels,omitempty"`
	Annotations       map[string]string `json:"annotations,omitempty"`
}

// metaOf returns the metadata of an object that stores none: the key's revisions.
func metaOf(name string, kv *mvccpb.KeyValue) metadata {
	return metadata{Name: name, UID: standIn(kv.CreateRevision), ResourceVersion: strconv.FormatInt(kv.ModRevision, 10)}
}

// standIn returns a UID for an object without one, which no other object created under the same key
// gets. It has the format of a UUID, which takes the least memory ([blocks.Pin]).
func standIn(createRevision int64) string {
	return fmt.Sprintf("00000000-0000-0000-%04x-%012x", createRevision>>48, createRevision&(1<<48-1))
}

// put decodes an object into a reading. spec is its JSON, or nil if the value could not be
// parsed, for the given reason: the decoder then finds a broken spec, and records a gap with
// what the name says about the object. status may be nil.
func (r *Reading) put(s store, kv *mvccpb.KeyValue, m metadata, spec, status []byte, reason string) {
	k := decode.KindOf(s.resource)
	if spec == nil {
		spec = []byte(`""`)
	}
	head, _ := json.Marshal(m) // strings always marshal
	text := make([]byte, 0, len(head)+len(spec)+128)
	text = fmt.Appendf(text, `{"apiVersion":%q,"kind":%q,"metadata":`, decode.GroupCRD, k.Name(decode.GroupCRD))
	text = append(append(append(text, head...), `,"spec":`...), spec...)
	if status != nil {
		text = append(append(text, `,"status":`...), status...)
	}
	text = append(text, '}')
	r.decode(s.resource, string(kv.Key), decode.GroupCRD, text, reason)
}

// decode decodes and records the JSON of an object. reason, if not empty, replaces that of
// its gap.
func (r *Reading) decode(res blocks.Resource, key, version string, text []byte, reason string) {
	out, object := r.list(res), decode.Object{Text: text}
	before := len(out.Gaps)
	d := decode.Decoder{Out: out, Strings: r.strings, Source: key}
	_ = d.One(object) // its syntax is valid
	for i := before; i < len(out.Gaps) && reason != ""; i++ {
		g := &out.Gaps[i]
		if g.Field, g.Reason = "", reason; g.Whole() {
			g.Reason = fmt.Sprintf("object %q: %s (%s)", decode.DefaultName, reason, key)
		}
	}
	if r.record != nil {
		r.record(res).Object(version, object)
	}
}

// notJSON is the reason of a gap.
const notJSON = "its value is not a JSON object"

// object reports whether a value is a JSON object.
func object(value []byte) bool { return len(value) > 0 && value[0] == '{' && json.Valid(value) }

// takeBlock takes a block, whose value has the fields of an IPAMBlock's spec
// (model.AllocationBlock). Its name in the key is the CIDR with "-" for "/".
func takeBlock(r *Reading, s store, kv *mvccpb.KeyValue) {
	_, cidr, found := strings.Cut(string(kv.Key), "/block/")
	if !found {
		return
	}
	m := metaOf(nameOf(cidr), kv)
	if !object(kv.Value) {
		r.put(s, kv, m, nil, nil, notJSON)
		return
	}
	var sequence uint64
	var host string
	owned := false
	in := decode.NewJSONReader(kv.Value)
	in.Fields(decode.Members{
		"sequenceNumber": func() { sequence, _ = strconv.ParseUint(string(in.Raw()), 10, 64) },
		"affinity":       func() { owned = string(in.Raw()) != "null" },
		"hostAffinity":   &host,
	})
	m.CreationTimestamp = timeOfSequence(sequence)
	spec := kv.Value
	if host != "" && !owned { // as releases before Calico v2.5 wrote it
		spec = append(fmt.Appendf(nil, `{"affinity":%q,`, string(blocks.HostOwner)+":"+host), kv.Value[1:]...)
	}
	r.put(s, kv, m, spec, nil, "")
}

// The range of times in a block's first sequence number. Older releases began at 0.
var (
	firstSequence = time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC)
	lastSequence  = time.Date(2200, 1, 1, 0, 0, 0, 0, time.UTC)
)

// timeOfSequence returns the time of a block's creation, in RFC 3339: its first sequence number is
// the time in nanoseconds since 1970, and each write adds one. It returns "" for other numbers.
func timeOfSequence(n uint64) string {
	if n < uint64(firstSequence.UnixNano()) || n > uint64(lastSequence.UnixNano()) {
		return ""
	}
	return time.Unix(0, int64(n)).UTC().Format(time.RFC3339)
}

// nameOf returns the name of the object for a CIDR in a key, as in Kubernetes. A name that
// is not a CIDR stays.
func nameOf(inKey string) string {
	if p, ok := blocks.ParseCIDR(strings.Replace(inKey, "-", "/", 1)); ok {
		return blocks.BlockName(p)
	}
	return inKey
}

// takeAffinity takes an affinity. Its key has the owner and the CIDR, its value the rest of
// a BlockAffinity's spec (model.BlockAffinity). Keys without a CIDR are hosts
// (model.IPAMHostKey).
func takeAffinity(r *Reading, s store, kv *mvccpb.KeyValue) {
	kind := strings.TrimSuffix(strings.TrimPrefix(s.key, ipamPrefix), "/")
	parts := strings.Split(strings.TrimPrefix(string(kv.Key), s.key), "/")
	if len(parts) != 4 || parts[2] != "block" {
		return
	}
	owner, inKey := parts[0], parts[3]
	cidr, ok := blocks.ParseCIDR(strings.Replace(inKey, "-", "/", 1))
	name := owner + "-" + inKey
	if ok {
		name = blocks.AffinityName(owner, cidr)
	}
	m := metaOf(name, kv)
	// Calico lists affinities in etcd by their keys, not by labels. Without the label, the
	// affinity would count as one that newer releases do not find.
	m.Labels = map[string]string{apiv3.LabelHostnameHash: "not-used-in-etcd", apiv3.LabelAffinityType: kind}
	head := fmt.Appendf(nil, `{"cidr":%q,"node":%q,"type":%q`, strings.Replace(inKey, "-", "/", 1), owner, kind)
	if !object(kv.Value) {
		r.put(s, kv, m, append(head, `,"state":{}}`...), nil, notJSON)
		return
	}
	r.put(s, kv, m, join(head, kv.Value), nil, "")
}

// join appends the members of a JSON object to the beginning of another one.
func join(head, value []byte) []byte {
	rest := strings.TrimSpace(string(value[1:]))
	if rest == "}" {
		return append(head, '}')
	}
	return append(append(head, ','), rest...)
}

// takeHandle takes a handle. Its key has the ID, its value the rest of an IPAMHandle's spec
// (model.IPAMHandle).
func takeHandle(r *Reading, s store, kv *mvccpb.KeyValue) {
	id := strings.TrimPrefix(string(kv.Key), s.key)
	m := metaOf(id, kv)
	if !object(kv.Value) {
		r.put(s, kv, m, nil, nil, notJSON)
		return
	}
	quoted, _ := json.Marshal(id)
	r.put(s, kv, m, join(append([]byte(`{"handleID":`), quoted...), kv.Value), nil, "")
}

// takeConfig takes the IPAM configuration, whose fields have other names than those of an
// IPAMConfig (model.IPAMConfig).
func takeConfig(r *Reading, s store, kv *mvccpb.KeyValue) {
	m := metaOf(decode.DefaultName, kv)
	var fields map[string]json.RawMessage
	if json.Unmarshal(kv.Value, &fields) != nil || fields == nil {
		r.put(s, kv, m, nil, nil, notJSON)
		return
	}
	for in, name := range map[string]string{"strict_affinity": "strictAffinity", "auto_allocate_blocks": "autoAllocateBlocks"} {
		if value, set := fields[in]; set {
			fields[name] = value
			delete(fields, in)
		}
	}
	spec, _ := json.Marshal(fields)
	r.put(s, kv, m, spec, nil, "")
}

// stored is an object of Calico's v3 API. It stores its metadata without resourceVersion.
type stored struct {
	Metadata metadata        `json:"metadata"`
	Spec     json.RawMessage `json:"spec"`
	Status   json.RawMessage `json:"status"`
}

// parse parses an object of Calico's v3 API, and completes its metadata.
func (s store) parse(kv *mvccpb.KeyValue) (o stored, reason string) {
	reason = notJSON
	if object(kv.Value) {
		reason = ""
		if err := json.Unmarshal(kv.Value, &o); err != nil {
			reason = "its metadata cannot be parsed: " + err.Error()
		}
	}
	m := metaOf(strings.TrimPrefix(string(kv.Key), s.key), kv)
	if o.Metadata.Name == "" || reason != "" {
		o.Metadata.Name = m.Name
	}
	if o.Metadata.UID == "" {
		o.Metadata.UID = m.UID
	}
	o.Metadata.ResourceVersion = m.ResourceVersion
	return o, reason
}

func takeObject(r *Reading, s store, kv *mvccpb.KeyValue) {
	o, reason := s.parse(kv)
	if reason != "" {
		o.Spec, o.Status = nil, nil
	} else if o.Spec == nil {
		o.Spec = []byte("{}")
	}
	r.put(s, kv, o.Metadata, o.Spec, o.Status, reason)
}
