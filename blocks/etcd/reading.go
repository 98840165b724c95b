package etcd

import (
	"maps"
	"slices"
	"strings"
	"sync"

	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/blocks/decode"
)

// A Reading holds the content of Calico's etcd at one revision.
type Reading struct {
	// Revision is the revision that was read.
	Revision int64

	lists map[blocks.Resource]*decode.Objects
	nodes map[string]*node // by Calico's name
	// byKubernetes holds Calico's name of each Kubernetes node.
	byKubernetes map[string]string
	// ofPods are the endpoints of Kubernetes' pods; others are all other endpoints.
	ofPods, others endpoints
	// denied are the ranges that the user may not read.
	denied map[string]bool
	// endpointsUnread is true if an endpoint could not be read.
	endpointsUnread bool
	// find, if set, reads the endpoints of a pod on a node; failed is its first error.
	find   func(key blocks.Key, node string) ([]*endpoint, error)
	mu     sync.Mutex
	failed error
	// runs are the writes of this program's runs.
	runs    runs
	record  func(blocks.Resource) decode.Spool
	strings *decode.SharedStrings
}

func newReading(record func(blocks.Resource) decode.Spool) *Reading {
	return &Reading{
		lists: map[blocks.Resource]*decode.Objects{}, nodes: map[string]*node{}, byKubernetes: map[string]string{},
		denied: map[string]bool{}, ofPods: endpoints{}, others: endpoints{}, runs: runs{}, record: record, strings: &decode.SharedStrings{},
	}
}

// list returns the objects of a resource.
func (r *Reading) list(res blocks.Resource) *decode.Objects {
	if r.lists[res] == nil {
		r.lists[res] = decode.NewObjects(decode.KindOf(res))
	}
	return r.lists[res]
}

// resources returns the resources with lists, in a fixed order.
func (r *Reading) resources() []blocks.Resource { return slices.Sorted(maps.Keys(r.lists)) }

// node is one of Calico's nodes.
type node struct {
	metadata
	key string
	// kubernetes is the name of its Kubernetes node; empty for other hosts. named holds all names
	// that it refers to.
	kubernetes string
	named      []string
	// annotations are those that Calico would write on the Kubernetes node if Kubernetes were its
	// datastore.
	annotations map[string]string
	podCIDRs    []string
	addresses   []address
}

// address is an entry of a Kubernetes node's status.addresses.
type address struct {
	Type    string `json:"type"`
	Address string `json:"address"`
}

// endpoint is a WorkloadEndpoint or HostEndpoint.
type endpoint struct {
	metadata
	key             string
	node, container string
	ips             []string
	// host is true for a HostEndpoint.
	host bool
}

// gap adds a gap for a node or endpoint that cannot be parsed.
func (r *Reading) gap(s store, kv *mvccpb.KeyValue, name, reason string) {
	l := r.list(s.resource)
	l.Gaps = append(l.Gaps, blocks.Gap{Resource: s.resource, Name: name, Source: string(kv.Key), Reason: reason, NotRecorded: true})
}

// endpoints are the endpoints of pods, in the order of their keys.
type endpoints map[blocks.Key][]*endpoint

func (all endpoints) add(e *endpoint) {
	of := all[e.podKey()]
	at, _ := slices.BinarySearchFunc(of, e.key, func(e *endpoint, key string) int { return strings.Compare(e.key, key) })
	all[e.podKey()] = slices.Insert(of, at, e)
}

func (e *endpoint) podKey() blocks.Key { return blocks.Key{Namespace: e.Namespace, Name: e.Name} }
