package storm

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// The history's processing of etcd events.

func (ch *EtcdHistory) event(e *clientv3.Event) {
	key, revision := string(e.Kv.Key), e.Kv.ModRevision
	deleted := e.Type == mvccpb.DELETE
	switch {
	case strings.HasPrefix(key, whereaboutsPrefix):
		ch.secondary.take(e)
	case strings.HasPrefix(key, blockPrefix):
		if deleted {
			ch.block(revision, key, nil)
		} else {
			ch.block(revision, key, e.Kv.Value)
		}
	case strings.HasPrefix(key, affinityPrefix):
		what := "deleted"
		if !deleted {
			what = affinityText(e.Kv.Value)
		}
		ch.note(key, revision, what)
	case strings.HasPrefix(key, "/registry/pods/"), strings.HasPrefix(key, "/registry/minions/"),
		strings.HasPrefix(key, "/registry/crd.projectcalico.org/ipamhandles/"):
		what := "updated"
		switch {
		case deleted:
			what = "deleted"
		case e.IsCreate():
			what = "created"
		}
		ch.note(key, revision, what)
	}
}

func (ch *EtcdHistory) note(key string, revision int64, what string) {
	ch.objects[key] = append(ch.objects[key], Change{revision, time.Now(), what})
}

func affinityText(value []byte) string {
	var a struct {
		Metadata struct {
			ManagedFields []managedFields `json:"managedFields"`
		} `json:"metadata"`
		Spec struct {
			State   string `json:"state"`
			Deleted any    `json:"deleted"`
		} `json:"spec"`
	}
	if err := json.Unmarshal(value, &a); err != nil {
		return err.Error()
	}
	return fmt.Sprintf("state %q deleted %v, state written by %s", a.Spec.State, a.Spec.Deleted, manager(a.Metadata.ManagedFields, "f:state"))
}

// block processes a version of a block; nil for its deletion.
func (ch *EtcdHistory) block(revision int64, key string, value []byte) {
	name := strings.TrimPrefix(key, blockPrefix)
	old := ch.blocks[name]
	var b *storedBlock
	writer, what := "its deletion", "deleted"
	if value != nil {
		b = &storedBlock{}
		if err := json.Unmarshal(value, b); err != nil {
			ch.wrong = append(ch.wrong, fmt.Sprintf("block %s at revision %d cannot be read: %v", name, revision, err))
			return
		}
		writer = manager(b.Metadata.ManagedFields, "f:allocations")
		owner := "nobody"
		if b.Spec.Affinity != nil {
			owner = *b.Spec.Affinity
		}
		what = fmt.Sprintf("of %s, deleted %v, allocations written by %s", owner, b.Spec.Deleted, writer)
		ch.blocks[name] = b
	} else {
		// Calico marks a block deleted before it deletes it.
		if old != nil && old.Spec.Deleted {
			writer = manager(old.Metadata.ManagedFields, "f:deleted")
		}
		delete(ch.blocks, name)
	}
	ch.note(key, revision, what)
	was, is := old.uses(), b.uses()
	var sequence uint64
	if b != nil {
		sequence = b.Spec.Sequence
	}
	for addr := range was {
		if _, still := is[addr]; !still {
			ch.moment(addr, Moment{Revision: revision, Block: name, Manager: writer, Sequence: sequence})
		}
	}
	for addr, u := range is {
		if before, had := was[addr]; !had || before != u {
			ch.moment(addr, Moment{Revision: revision, Block: name, Manager: writer, Sequence: sequence, Allocated: true, Handle: u.handle, Node: u.node})
		}
	}
}

func (ch *EtcdHistory) moment(addr netip.Addr, m Moment) {
	m.At = time.Now()
	if old := ch.addrs[addr]; len(old) > 0 && m.Allocated {
		if last := old[len(old)-1]; last.Allocated && last.Block != m.Block {
			ch.wrong = append(ch.wrong, fmt.Sprintf("%s is allocated in two blocks: %s; %s", addr, last, m))
		}
	}
	ch.addrs[addr] = append(ch.addrs[addr], m)
	if ch.onMoment != nil {
		ch.onMoment(addr, &m)
	}
}
