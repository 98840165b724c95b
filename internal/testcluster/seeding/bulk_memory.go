package seeding

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strconv"

	apiv3 "github.com/projectcalico/api/pkg/apis/projectcalico/v3"
	bapi "github.com/projectcalico/calico/libcalico-go/lib/backend/api"
	"github.com/projectcalico/calico/libcalico-go/lib/backend/model"
	cerrors "github.com/projectcalico/calico/libcalico-go/lib/errors"
	cnet "github.com/projectcalico/calico/libcalico-go/lib/net"
	"github.com/projectcalico/calico/libcalico-go/lib/options"
)

// memoryStore is a Calico datastore in memory for one goroutine. It implements the
// operations that the IPAM client needs to allocate. It starts with the state of a
// cluster, and records all writes since.
type memoryStore struct {
	// Client is nil, so methods that are not implemented here panic.
	bapi.Client

	objects map[string]*model.KVPair
	blocks  map[string]*model.KVPair
	byHost  map[string][]model.BlockAffinityKey
	written map[string]bool
	// revision counts writes.
	revision int
}

func newMemoryStore() *memoryStore {
	return &memoryStore{
		objects: map[string]*model.KVPair{}, blocks: map[string]*model.KVPair{},
		byHost: map[string][]model.BlockAffinityKey{}, written: map[string]bool{},
	}
}

// load adds existing objects of the cluster.
func (m *memoryStore) load(kvps []*model.KVPair) error {
	for _, kvp := range kvps {
		path, err := model.KeyToDefaultPath(kvp.Key)
		if err != nil {
			return err
		}
		m.put(path, kvp)
	}
	return nil
}

func (m *memoryStore) put(path string, kvp *model.KVPair) *model.KVPair {
	m.revision++
	stored := copyKVP(kvp)
	stored.Revision = strconv.Itoa(m.revision)
	switch key := kvp.Key.(type) {
	case model.BlockKey:
		m.blocks[path] = stored
	case model.BlockAffinityKey:
		if _, ok := m.objects[path]; !ok {
			m.byHost[key.Host] = append(m.byHost[key.Host], key)
		}
	}
	m.objects[path] = stored
	return copyKVP(stored)
}

func (m *memoryStore) Create(_ context.Context, kvp *model.KVPair) (*model.KVPair, error) {
	path, err := model.KeyToDefaultPath(kvp.Key)
	if err != nil {
		return nil, err
	}
	if _, ok := m.objects[path]; ok {
		return nil, cerrors.ErrorResourceAlreadyExists{Identifier: kvp.Key}
	}
	m.written[path] = true
	return m.put(path, kvp), nil
}

func (m *memoryStore) Update(_ context.Context, kvp *model.KVPair) (*model.KVPair, error) {
	path, err := model.KeyToDefaultPath(kvp.Key)
	if err != nil {
		return nil, err
	}
	switch old, ok := m.objects[path]; {
	case !ok:
		return nil, cerrors.ErrorResourceDoesNotExist{Identifier: kvp.Key}
	case kvp.Revision != "" && kvp.Revision != old.Revision:
		return nil, cerrors.ErrorResourceUpdateConflict{Identifier: kvp.Key}
	}
	m.written[path] = true
	return m.put(path, kvp), nil
}

func (m *memoryStore) Get(_ context.Context, key model.Key, _ string) (*model.KVPair, error) {
	path, err := model.KeyToDefaultPath(key)
	if err != nil {
		return nil, err
	}
	kvp, ok := m.objects[path]
	if !ok {
		return nil, cerrors.ErrorResourceDoesNotExist{Identifier: key}
	}
	return copyKVP(kvp), nil
}

func (m *memoryStore) List(_ context.Context, list model.ListInterface, _ string) (*model.KVPairList, error) {
	out := &model.KVPairList{Revision: strconv.Itoa(m.revision)}
	switch l := list.(type) {
	case model.BlockListOptions:
		// The IPAM client only reads these, so they are not copied.
		out.KVPairs = slices.Collect(maps.Values(m.blocks))
	case model.BlockAffinityListOptions:
		if l.Host == "" {
			return nil, errors.New("affinities can only be listed by host here")
		}
		for _, key := range m.byHost[l.Host] {
			if (l.IPVersion == 0 || l.IPVersion == key.CIDR.Version()) &&
				(l.AffinityType == "" || l.AffinityType == key.AffinityType) {
				kvp, err := m.Get(context.Background(), key, "")
				if err != nil {
					return nil, err
				}
				out.KVPairs = append(out.KVPairs, kvp)
			}
		}
	default:
		return nil, cerrors.ErrorOperationNotSupported{Operation: "List", Identifier: list}
	}
	return out, nil
}

// copyKVP copies a key-value pair deeply enough for the IPAM client, which modifies its
// copy in place.
func copyKVP(kvp *model.KVPair) *model.KVPair {
	c := *kvp
	switch v := kvp.Value.(type) {
	case *model.AllocationBlock:
		b := *v
		b.Allocations = slices.Clone(v.Allocations)
		b.Unallocated = slices.Clone(v.Unallocated)
		b.Attributes = slices.Clone(v.Attributes)
		b.SequenceNumberForAllocation = maps.Clone(v.SequenceNumberForAllocation)
		c.Value = &b
	case *model.IPAMHandle:
		h := *v
		h.Block = maps.Clone(v.Block)
		c.Value = &h
	case *model.BlockAffinity:
		a := *v
		c.Value = &a
	case *model.IPAMConfig:
		i := *v
		c.Value = &i
	}
	return &c
}

// fixedPools returns the pools and reservations as they were at the start.
type fixedPools struct {
	pools        []apiv3.IPPool
	reservations *apiv3.IPReservationList
}

func (f fixedPools) GetAllPools(context.Context) ([]apiv3.IPPool, error) { return f.pools, nil }

func (f fixedPools) GetEnabledPools(_ context.Context, version int) ([]apiv3.IPPool, error) {
	var enabled []apiv3.IPPool
	for _, pool := range f.pools {
		ip, _, err := cnet.ParseCIDR(pool.Spec.CIDR)
		if err != nil {
			return nil, err
		}
		if !pool.Spec.Disabled && ip.Version() == version {
			enabled = append(enabled, pool)
		}
	}
	return enabled, nil
}

func (f fixedPools) List(context.Context, options.ListOptions) (*apiv3.IPReservationList, error) {
	return f.reservations, nil
}
