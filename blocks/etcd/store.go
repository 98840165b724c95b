package etcd

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	apiv3 "github.com/projectcalico/api/pkg/apis/projectcalico/v3"
	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/blocks/decode"
	"github.com/calico-audit/calico-audit/blocks/decode/parse"
)

// A store is a range of keys that hold objects of one kind (libcalico-go lib/backend/model).
type store struct {
	resource blocks.Resource
	// key is the prefix of the keys, ending in a slash, or the only key.
	key string
	// object returns the object of a key; ok is false if the key holds none.
	object func(store, *mvccpb.KeyValue) (o object, ok bool)
	// take adds the object of a key to a reading; nil if object is enough.
	take func(*Reading, store, *mvccpb.KeyValue)
	// later is true if the objects must first be joined with those of Kubernetes.
	later bool
}

// object holds the parts of the object of a key.
type object struct {
	metadata
	// spec and status are JSON. status may be nil.
	spec, status []byte
	// unread explains why the value could not be parsed; spec is then nil.
	unread string
}

// The prefixes of Calico's keys.
const (
	ipamPrefix     = "/calico/ipam/v2/"
	resourcePrefix = "/calico/resources/v3/projectcalico.org/"
)

// stores lists the ranges to read. A role for reading needs exactly these ranges.
var stores = []store{
	{resource: blocks.Blocks, key: ipamPrefix + "assignment/", object: blockOf},
	{resource: blocks.Affinities, key: ipamPrefix + string(blocks.HostOwner) + "/", object: affinityOf},
	{resource: blocks.Affinities, key: ipamPrefix + string(blocks.VirtualOwner) + "/", object: affinityOf},
	{resource: blocks.Handles, key: ipamPrefix + "handle/", object: handleOf},
	{resource: blocks.IPAMConfigs, key: ipamPrefix + "config", object: configOf},
	ofV3(blocks.Pools), ofV3(blocks.Reservations), ofV3(blocks.ClusterInfos), ofV3(blocks.ControllerConfig), ofV3(blocks.FelixConfigs),
	ofV3(blocks.BGPConfigs), ofV3(blocks.BGPPeers), ofV3(blocks.BGPFilters),
	{resource: blocks.Nodes, key: resourcePrefix + "nodes/", take: takeNode, later: true},
	{resource: blocks.Pods, key: resourcePrefix + "workloadendpoints/", take: takeWorkloadEndpoint, later: true},
	{resource: blocks.Pods, key: resourcePrefix + "hostendpoints/", take: takeHostEndpoint, later: true},
}

// storeOf returns the store of a key.
func storeOf(key string) (s store, ok bool) {
	i := slices.IndexFunc(stores, func(s store) bool { return strings.HasPrefix(key, s.key) })
	if i < 0 {
		return s, false
	}
	return stores[i], true
}

// ofV3 returns the store of a kind whose values are objects of Calico's v3 API.
func ofV3(res blocks.Resource) store {
	return store{resource: res, key: resourcePrefix + string(res) + "/", object: ofV3Object}
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
	// ManagedFields are set if a run of this program wrote the object last.
	ManagedFields []managedFields `json:"managedFields,omitempty"`
}

type managedFields struct {
	Manager   string `json:"manager"`
	Operation string `json:"operation"`
	Time      string `json:"time"`
}

func byUs(at time.Time) []managedFields {
	return []managedFields{{blocks.FieldManager, "Update", at.UTC().Format(time.RFC3339)}}
}

// metaOf returns the metadata of an object that stores none: the key's revisions.
func metaOf(name string, kv *mvccpb.KeyValue) metadata {
	return metadata{Name: name, UID: standIn(kv.CreateRevision), ResourceVersion: strconv.FormatInt(kv.ModRevision, 10)}
}

// standIn returns a UID for an object without one. No other object created under the same key gets
// the same UID. It has the format of a UUID, which takes the least memory ([blocks.Pin]).
func standIn(createRevision int64) string {
	return fmt.Sprintf("00000000-0000-0000-%04x-%012x", createRevision>>48, createRevision&(1<<48-1))
}

// add adds the object of a key to a reading. If the value could not be parsed, the decoder finds a
// broken spec, and records a gap with the facts that the name contains.
func (r *Reading) add(s store, kv *mvccpb.KeyValue) {
	if s.take != nil {
		s.take(r, s, kv)
		return
	}
	o, ok := s.object(s, kv)
	if !ok {
		return
	}
	if o.spec == nil {
		o.spec = []byte(`""`)
	}
	if at, ours := r.runs.wrote(kv); ours {
		o.ManagedFields = byUs(at)
	}
	r.decode(s.resource, string(kv.Key), decode.GroupCRD, o.json(s.resource), o.unread)
}

// json returns the object of crd.projectcalico.org/v1.
func (o *object) json(res blocks.Resource) []byte {
	head, _ := json.Marshal(o.metadata) // strings always marshal
	text := make([]byte, 0, len(head)+len(o.spec)+128)
	text = fmt.Appendf(text, `{"apiVersion":%q,"kind":%q,"metadata":`, decode.GroupCRD, decode.KindOf(res).Name(decode.GroupCRD))
	text = append(append(append(text, head...), `,"spec":`...), o.spec...)
	if o.status != nil {
		text = append(append(text, `,"status":`...), o.status...)
	}
	return append(text, '}')
}

// decode decodes and records the JSON of an object. reason, if not empty, replaces the reason of
// its gap.
func (r *Reading) decode(res blocks.Resource, key, version string, text []byte, reason string) {
	out, o := r.list(res), decode.Object{Text: text}
	before := len(out.Gaps)
	d := decode.Decoder{Out: out, Strings: r.strings, Source: key}
	_ = d.One(o) // its syntax is valid
	for i := before; i < len(out.Gaps) && reason != ""; i++ {
		g := &out.Gaps[i]
		if g.Field, g.Reason = "", reason; g.Whole() {
			g.Reason = fmt.Sprintf("object %q: %s (%s)", blocks.DefaultName, reason, key)
		}
	}
	if r.record != nil {
		r.record(res).Object(version, o)
	}
}

// notJSON is the reason of a gap.
const notJSON = "its value is not a JSON object"

// isObject reports whether a value is a JSON object.
func isObject(value []byte) bool { return len(value) > 0 && value[0] == '{' && json.Valid(value) }

// blockOf returns a block, whose value has the fields of an IPAMBlock's spec
// (model.AllocationBlock). Its name in the key is the CIDR with "-" for "/".
func blockOf(_ store, kv *mvccpb.KeyValue) (o object, ok bool) {
	_, cidr, found := strings.Cut(string(kv.Key), "/block/")
	if !found {
		return o, false
	}
	o.metadata = metaOf(nameOf(cidr), kv)
	if !isObject(kv.Value) {
		o.unread = notJSON
		return o, true
	}
	var sequence uint64
	var host string
	owned := false
	in := parse.New(kv.Value)
	in.Fields(parse.Members{
		"sequenceNumber": func() { sequence, _ = strconv.ParseUint(string(in.Raw()), 10, 64) },
		"affinity":       func() { owned = string(in.Raw()) != "null" },
		"hostAffinity":   &host,
	})
	o.CreationTimestamp, o.spec = timeOfSequence(sequence), kv.Value
	if host != "" && !owned { // as releases before Calico v2.5 wrote it
		o.spec = append(fmt.Appendf(nil, `{"affinity":%q,`, string(blocks.HostOwner)+":"+host), kv.Value[1:]...)
	}
	return o, true
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

// affinityOf returns an affinity. Its key has the owner and the CIDR, its value the rest of
// a BlockAffinity's spec (model.BlockAffinity). Keys without a CIDR are hosts
// (model.IPAMHostKey).
func affinityOf(s store, kv *mvccpb.KeyValue) (o object, ok bool) {
	kind := strings.TrimSuffix(strings.TrimPrefix(s.key, ipamPrefix), "/")
	parts := strings.Split(strings.TrimPrefix(string(kv.Key), s.key), "/")
	if len(parts) != 4 || parts[2] != "block" {
		return o, false
	}
	owner, inKey := parts[0], parts[3]
	cidr, valid := blocks.ParseCIDR(strings.Replace(inKey, "-", "/", 1))
	name := owner + "-" + inKey
	if valid {
		name = blocks.AffinityName(owner, cidr)
	}
	o.metadata = metaOf(name, kv)
	// Calico lists affinities in etcd by their keys, not by labels. Without the label, the
	// affinity would count as one that newer releases do not find.
	o.Labels = map[string]string{apiv3.LabelHostnameHash: "not-used-in-etcd", apiv3.LabelAffinityType: kind}
	head := fmt.Appendf(nil, `{"cidr":%q,"node":%q,"type":%q`, strings.Replace(inKey, "-", "/", 1), owner, kind)
	if !isObject(kv.Value) {
		o.spec, o.unread = fmt.Appendf(head, `,"state":{}}`), notJSON
		return o, true
	}
	o.spec = join(head, kv.Value)
	return o, true
}

// join appends the members of a JSON object to the beginning of another one.
func join(head, value []byte) []byte {
	rest := strings.TrimSpace(string(value[1:]))
	if rest == "}" {
		return append(head, '}')
	}
	return append(append(head, ','), rest...)
}

// handleOf returns a handle. Its key has the ID, its value the rest of an IPAMHandle's spec
// (model.IPAMHandle).
func handleOf(s store, kv *mvccpb.KeyValue) (o object, ok bool) {
	id := strings.TrimPrefix(string(kv.Key), s.key)
	o.metadata = metaOf(id, kv)
	if !isObject(kv.Value) {
		o.unread = notJSON
		return o, true
	}
	quoted, _ := json.Marshal(id)
	o.spec = join(append([]byte(`{"handleID":`), quoted...), kv.Value)
	return o, true
}

// configFields are the fields of the IPAM configuration whose names differ from those of an
// IPAMConfig (model.IPAMConfig).
var configFields = map[string]string{"strict_affinity": "strictAffinity", "auto_allocate_blocks": "autoAllocateBlocks"}

// configOf returns the IPAM configuration.
func configOf(_ store, kv *mvccpb.KeyValue) (o object, ok bool) {
	o.metadata = metaOf(blocks.DefaultName, kv)
	var fields map[string]json.RawMessage
	if json.Unmarshal(kv.Value, &fields) != nil || fields == nil {
		o.unread = notJSON
		return o, true
	}
	for in, name := range configFields {
		if value, set := fields[in]; set {
			fields[name] = value
			delete(fields, in)
		}
	}
	o.spec, _ = json.Marshal(fields) // raw members always marshal
	return o, true
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
	if isObject(kv.Value) {
		reason = ""
		if err := json.Unmarshal(kv.Value, &o); err != nil {
			reason = "its metadata cannot be parsed: " + err.Error()
		}
	}
	m := metaOf(strings.TrimPrefix(string(kv.Key), s.key), kv)
	if o.Metadata.UID == "" {
		o.Metadata.UID = m.UID
	}
	o.Metadata.Name, o.Metadata.ResourceVersion = m.Name, m.ResourceVersion // Calico's client takes the key's name, too
	return o, reason
}

func ofV3Object(s store, kv *mvccpb.KeyValue) (o object, ok bool) {
	in, reason := s.parse(kv)
	o = object{in.Metadata, in.Spec, in.Status, reason}
	if reason != "" {
		o.spec, o.status = nil, nil
	} else if o.spec == nil {
		o.spec = []byte("{}")
	}
	return o, true
}
