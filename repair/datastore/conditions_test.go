package datastore_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"path"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/internal/testcluster"
	"github.com/calico-audit/calico-audit/repair"
	"github.com/calico-audit/calico-audit/repair/datastore"
)

// small holds a few objects in memory, at least one for each method of the writer. They
// are similar to those of [newWorld].
type small struct {
	*memory
	group testcluster.Group
}

func newSmall(t *testing.T, group testcluster.Group) *small {
	s := &small{&memory{t: t, objects: map[string]json.RawMessage{}}, group}
	s.block(inUse, "host:n1", map[int]string{1: "a", leaked: "gone"})
	s.block(empty, "host:n1", nil)
	s.block(contested, "host:n2", map[int]string{1: "c"})
	s.block(nobodys, nil, map[int]string{1: "gone-too"})
	s.block(lost, "host:n2", map[int]string{1: "d"})
	s.block(marked, "host:n2", nil)
	s.edit(s.path(blocks.Blocks, blocks.BlockName(marked)), func(o map[string]any) { o["spec"].(map[string]any)["deleted"] = true })
	s.block(orphaned, "host:off", map[int]string{1: "e"})
	s.affinity("off", orphaned, blocks.Confirmed)
	s.affinity("n1", inUse, blocks.Confirmed)
	s.affinity("n1", empty, blocks.Confirmed)
	s.affinity("n2", contested, blocks.PendingDeletion)
	s.affinity("n3", contested, blocks.Confirmed)
	s.affinity("n3", noBlock, blocks.Confirmed)
	s.handle("gone", inUse, 1)
	s.handle("gone-too", nobodys, 1)
	s.handle("a", inUse, 3)
	s.handle(orphan, inUse, 1)
	s.create(blocks.Reservations, ourReservation, map[string]any{"reservedCIDRs": []any{inUse.String()}})
	s.edit(s.path(blocks.Reservations, ourReservation), func(o map[string]any) {
		o["metadata"].(map[string]any)["annotations"] = map[string]any{blocks.OursAnnotation: "x"}
	})
	s.secondary()
	s.create(blocks.IPAMConfigs, "default", map[string]any{"strictAffinity": false, "autoAllocateBlocks": true})
	return s
}

// Whereabouts objects: an address with a pool entry and a reservation, one with only an
// entry, and two with only a reservation.
const (
	secondaryPool = "multus/10.9.0.0-24"
	reserved      = "multus/10.9.0.5"
	reservedAlone = "multus/10.9.0.7"
)

func (s *small) secondary() {
	entry := func(pod string) map[string]any { return map[string]any{"id": "c", "podref": pod, "ifname": "net1"} }
	s.create(blocks.WhereaboutsPools, secondaryPool, map[string]any{"range": "10.9.0.0/24", "allocations": map[string]any{"5": entry("a/gone"), "6": entry("a/live")}})
	s.create(blocks.WhereaboutsReservations, reserved, map[string]any{"podref": "a/gone", "ifname": "net1"})
	s.create(blocks.WhereaboutsReservations, reservedAlone, map[string]any{"podref": "a/left", "ifname": "net1"})
}

func secondaryAt(offset uint64, pod string) repair.SecondaryAddress {
	return repair.SecondaryAddress{Pool: secondaryPool, Offset: offset, Owner: repair.SecondaryOwner{Pod: pod, Container: "c", Interface: "net1"}}
}

func (s *small) path(r blocks.Resource, name string) string {
	if namespace, name, ok := strings.Cut(name, "/"); ok {
		plural, _, _ := strings.Cut(string(r), ".")
		return "/apis/" + string(testcluster.Whereabouts) + "/namespaces/" + namespace + "/" + plural + "/" + name
	}
	return "/apis/" + string(s.group) + "/" + s.group.Resource(string(r)).Resource + "/" + name
}

func (s *small) create(r blocks.Resource, name string, spec map[string]any) {
	kinds := map[blocks.Resource]string{blocks.Blocks: "IPAMBlock", blocks.Affinities: "BlockAffinity", blocks.Handles: "IPAMHandle", blocks.IPAMConfigs: "IPAMConfig", blocks.Reservations: "IPReservation",
		blocks.WhereaboutsPools: "IPPool", blocks.WhereaboutsReservations: "OverlappingRangeIPReservation"}
	group, meta := s.group, map[string]any{"name": name}
	if namespace, rest, ok := strings.Cut(name, "/"); ok {
		group, meta = testcluster.Whereabouts, map[string]any{"namespace": namespace, "name": rest}
	}
	s.put(s.path(r, name), map[string]any{"apiVersion": string(group), "kind": kinds[r], "metadata": meta, "spec": spec})
}

// block creates a block. handles maps allocated ordinals to handles.
func (s *small) block(cidr netip.Prefix, owner any, handles map[int]string) {
	size := 1 << (32 - cidr.Bits())
	allocations, unallocated, attributes, sequences := make([]any, size), []any{}, []any{}, map[string]any{}
	for o := range size {
		if h, used := handles[o]; used {
			allocations[o], sequences[fmt.Sprint(o)] = len(attributes), o
			attributes = append(attributes, map[string]any{"handle_id": h})
			continue
		}
		unallocated = append(unallocated, o)
	}
	s.create(blocks.Blocks, blocks.BlockName(cidr), map[string]any{
		"cidr": cidr.String(), "affinity": owner, "allocations": allocations, "unallocated": unallocated, "attributes": attributes,
		"sequenceNumber": 100, "sequenceNumberForAllocation": sequences, "deleted": false, "strictAffinity": false,
	})
}

func (s *small) affinity(host string, cidr netip.Prefix, state blocks.AffinityState) {
	var deleted any = false
	if s.group == testcluster.CRDv1 {
		deleted = "false"
	}
	s.create(blocks.Affinities, blocks.AffinityName(host, cidr), map[string]any{
		"cidr": cidr.String(), "node": host, "type": "host", "state": string(state), "deleted": deleted,
	})
}

// mark marks an object deleted, as its kind does.
func (s *small) mark(o map[string]any) {
	spec := o["spec"].(map[string]any)
	if _, text := spec["deleted"].(string); text {
		spec["deleted"] = "true"
		return
	}
	spec["deleted"] = true
}

func (s *small) handle(id string, cidr netip.Prefix, count int) {
	s.create(blocks.Handles, id, map[string]any{"handleID": id, "block": map[string]any{cidr.String(): count}, "deleted": false})
}

// ref pins an object in its current version.
func (s *small) ref(r blocks.Resource, name string) repair.ObjectRef {
	meta := s.get(s.path(r, name))["metadata"].(map[string]any)
	return repair.ObjectRef{Resource: r, Name: name, UID: meta["uid"].(string), ResourceVersion: meta["resourceVersion"].(string)}
}

func (s *small) blockRef(cidr netip.Prefix) repair.ObjectRef {
	return s.ref(blocks.Blocks, blocks.BlockName(cidr))
}

func (s *small) affinityRef(host string, cidr netip.Prefix) repair.ObjectRef {
	return s.ref(blocks.Affinities, blocks.AffinityName(host, cidr))
}

// ourReservation is an IPReservation with calico-audit's annotation.
const ourReservation = "calico-audit-10-64-0-0-26"

// calls holds a call of each writing method by the method's name. Several cases of a
// method differ in the text after the name.
var calls = map[string]func(s *small, k *datastore.Writer) error{
	"ReleaseBlock": func(s *small, k *datastore.Writer) error {
		a := s.affinityRef("n1", empty)
		return k.ReleaseBlock(s.t.Context(), s.blockRef(empty), &a, nil)
	},
	"ReleaseBlock of a node that keeps another": func(s *small, k *datastore.Writer) error {
		a, kept := s.affinityRef("n1", empty), s.blockRef(inUse)
		return k.ReleaseBlock(s.t.Context(), s.blockRef(empty), &a, &kept)
	},
	"ReleaseBlock without an affinity": func(s *small, k *datastore.Writer) error {
		delete(s.objects, s.path(blocks.Affinities, blocks.AffinityName("n1", empty)))
		return k.ReleaseBlock(s.t.Context(), s.blockRef(empty), nil, nil)
	},
	"DisownBlock": func(s *small, k *datastore.Writer) error {
		a := s.affinityRef("off", orphaned)
		return k.DisownBlock(s.t.Context(), s.blockRef(orphaned), &a)
	},
	"RecordIP of an address that no block records": func(s *small, k *datastore.Writer) error {
		return k.RecordIP(s.t.Context(), s.blockRef(inUse), restoredAt, recordation(netip.Prefix{}, ""))
	},
	"RecordIP of an address that is recorded for another pod": func(s *small, k *datastore.Writer) error {
		return k.RecordIP(s.t.Context(), s.blockRef(inUse), leaked, replacement("gone", leaked))
	},
	"RecordIP of an address whose block does not exist": func(s *small, k *datastore.Writer) error {
		a := recordation(noBlock, "n3")
		a.Beside = []repair.Beside{{Ordinal: 0, Handle: "k8s-pod-network.x"}}
		return k.RecordIP(s.t.Context(), repair.ObjectRef{Resource: blocks.Blocks, Name: blocks.BlockName(noBlock)}, 3, a)
	},
	"RecordIP of an address without a handle": func(s *small, k *datastore.Writer) error {
		a := recordation(netip.Prefix{}, "")
		a.Handle = ""
		return k.RecordIP(s.t.Context(), s.blockRef(inUse), restoredAt, a)
	},
	"CreateHandle": func(s *small, k *datastore.Writer) error {
		delete(s.objects, s.path(blocks.Handles, "gone"))
		return k.CreateHandle(s.t.Context(), "gone", []blocks.HandleCount{{CIDR: inUse, Count: 1}})
	},
	"DeleteAffinity": func(s *small, k *datastore.Writer) error {
		return k.DeleteAffinity(s.t.Context(), s.affinityRef("n3", noBlock))
	},
	"DeleteAffinity of a block with another owner": func(s *small, k *datastore.Writer) error {
		return k.DeleteAffinity(s.t.Context(), s.affinityRef("n3", contested))
	},
	"DeleteAffinity of one that is marked deleted": func(s *small, k *datastore.Writer) error {
		s.edit(s.path(blocks.Affinities, blocks.AffinityName("n3", noBlock)), func(o map[string]any) { s.mark(o) })
		return k.DeleteAffinity(s.t.Context(), s.affinityRef("n3", noBlock))
	},
	"RestoreAffinity": func(s *small, k *datastore.Writer) error {
		return k.RestoreAffinity(s.t.Context(), s.blockRef(lost))
	},
	"ReleaseIPs": func(s *small, k *datastore.Writer) error {
		return releaseOne(k, s.t.Context(), s.blockRef(inUse), leaked, "gone", leaked)
	},
	"ReleaseIPs of a block that belongs to no one": func(s *small, k *datastore.Writer) error {
		return releaseOne(k, s.t.Context(), s.blockRef(nobodys), 1, "gone-too", 1)
	},
	"ReleaseIPs of a block that was written since": func(s *small, k *datastore.Writer) error {
		ref := s.blockRef(inUse)
		s.edit(s.path(blocks.Blocks, ref.Name), func(o map[string]any) { writtenByOther(o) })
		return releaseOne(k, s.t.Context(), ref, leaked, "gone", leaked)
	},
	"ReleaseIPs of two addresses": func(s *small, k *datastore.Writer) error {
		return errors.Join(k.ReleaseIPs(s.t.Context(), s.blockRef(inUse), []repair.ReleaseOptions{
			{Step: "1", Ordinal: 1, Handle: "a", Sequence: 1}, {Step: "2", Ordinal: leaked, Handle: "gone", Sequence: leaked},
		})...)
	},
	"DeleteHandle": func(s *small, k *datastore.Writer) error {
		return k.DeleteHandle(s.t.Context(), s.ref(blocks.Handles, orphan))
	},
	"SetHandleCounts": func(s *small, k *datastore.Writer) error {
		return k.SetHandleCounts(s.t.Context(), s.ref(blocks.Handles, "a"), []blocks.HandleCount{{CIDR: inUse, Count: 1}})
	},
	"ClaimBlock": func(s *small, k *datastore.Writer) error {
		return k.ClaimBlock(s.t.Context(), noBlock, "n3")
	},
	"ClaimBlock without an affinity": func(s *small, k *datastore.Writer) error {
		delete(s.objects, s.path(blocks.Affinities, blocks.AffinityName("n3", noBlock)))
		return k.ClaimBlock(s.t.Context(), noBlock, "n3")
	},
	"Reserve": func(s *small, k *datastore.Writer) error {
		return k.Reserve(s.t.Context(), noBlock, "for a test")
	},
	"Unreserve": func(s *small, k *datastore.Writer) error {
		return k.Unreserve(s.t.Context(), s.ref(blocks.Reservations, ourReservation))
	},
	"FinishDelete": func(s *small, k *datastore.Writer) error {
		return k.FinishDelete(s.t.Context(), s.blockRef(marked))
	},
	"FinishDelete of an affinity whose node has the block": func(s *small, k *datastore.Writer) error {
		s.edit(s.path(blocks.Affinities, blocks.AffinityName("n1", inUse)), func(o map[string]any) { s.mark(o) })
		return k.FinishDelete(s.t.Context(), s.affinityRef("n1", inUse))
	},
	"SetStrictAffinity": func(s *small, k *datastore.Writer) error {
		ref := s.ref(blocks.IPAMConfigs, "default")
		return k.SetStrictAffinity(s.t.Context(), &ref, true)
	},
	"PutAffinityState": func(s *small, k *datastore.Writer) error {
		return k.PutAffinityState(s.t.Context(), s.affinityRef("n2", contested), blocks.Confirmed)
	},
	"RecreateHandle": func(s *small, k *datastore.Writer) error {
		return k.RecreateHandle(s.t.Context(), s.taken(blocks.Handles, orphan))
	},
	"RecordIP": func(s *small, k *datastore.Writer) error {
		path := s.path(blocks.Blocks, blocks.BlockName(inUse))
		was := s.objects[path]
		s.edit(path, func(o map[string]any) { o["spec"].(map[string]any)["allocations"].([]any)[leaked] = nil })
		return k.RecordIP(s.t.Context(), s.blockRef(inUse), leaked, repair.Allocation{Block: was, Stored: s.objects[s.path(blocks.Handles, "gone")]})
	},
}

func init() {
	calls["ReleaseWhereabouts"] = func(s *small, k *datastore.Writer) error {
		r := s.ref(blocks.WhereaboutsReservations, reserved)
		return k.ReleaseWhereabouts(s.t.Context(), s.ref(blocks.WhereaboutsPools, secondaryPool), secondaryAt(5, "a/gone"), &r, nil)
	}
	calls["DeleteWhereaboutsReservation"] = func(s *small, k *datastore.Writer) error {
		return k.DeleteWhereaboutsReservation(s.t.Context(), s.ref(blocks.WhereaboutsReservations, reservedAlone), []repair.SecondaryAddress{secondaryAt(7, "")})
	}
	calls["ReserveWhereabouts"] = func(s *small, k *datastore.Writer) error {
		return k.ReserveWhereabouts(s.t.Context(), s.taken(blocks.WhereaboutsReservations, reserved), []repair.SecondaryAddress{secondaryAt(5, "")})
	}
	calls["RestoreWhereabouts"] = func(s *small, k *datastore.Writer) error {
		return k.RestoreWhereabouts(s.t.Context(), s.ref(blocks.WhereaboutsPools, secondaryPool), secondaryAt(7, "a/left"), s.ref(blocks.WhereaboutsReservations, reservedAlone))
	}
	calls["RecordWhereabouts"] = func(s *small, k *datastore.Writer) error {
		path := s.path(blocks.WhereaboutsPools, secondaryPool)
		was := s.objects[path]
		s.edit(path, func(o map[string]any) { delete(o["spec"].(map[string]any)["allocations"].(map[string]any), "5") })
		ref := s.ref(blocks.WhereaboutsPools, secondaryPool)
		return k.RecordWhereabouts(s.t.Context(), &ref, 5, was, s.taken(blocks.WhereaboutsReservations, reserved))
	}
}

// TestSecondaryGuards checks that an address of a secondary network is taken only from
// the owner that the step names, is given only to the pod that has it, and keeps its
// reservation while a pool records it.
func TestSecondaryGuards(t *testing.T) {
	edit := func(key string, entry any) func(*small) {
		return func(s *small) {
			s.edit(s.path(blocks.WhereaboutsPools, secondaryPool), func(o map[string]any) {
				all := o["spec"].(map[string]any)["allocations"].(map[string]any)
				if all[key] = entry; entry == nil {
					delete(all, key)
				}
			})
		}
	}
	other := func(pod, id, iface string) map[string]any {
		return map[string]any{"id": id, "podref": pod, "ifname": iface}
	}
	for name, c := range map[string]struct {
		method string
		before func(*small)
	}{
		"the entry is another pod's":                 {"ReleaseWhereabouts", edit("5", other("a/x", "c", "net1"))},
		"the entry is another sandbox's":             {"ReleaseWhereabouts", edit("5", other("a/gone", "d", "net1"))},
		"the entry is another interface's":           {"ReleaseWhereabouts", edit("5", other("a/gone", "c", "net2"))},
		"the entry is gone":                          {"ReleaseWhereabouts", edit("5", nil)},
		"a pool records what was reserved":           {"DeleteWhereaboutsReservation", edit("7", other("a/x", "c", "net1"))},
		"written with a leading zero":                {"DeleteWhereaboutsReservation", edit("07", other("a/x", "c", "net1"))},
		"the offset is taken":                        {"RestoreWhereabouts", edit("7", other("a/x", "c", "net1"))},
		"the offset is taken, and spelled otherwise": {"RestoreWhereabouts", edit("007", other("a/x", "c", "net1"))},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSmall(t, testcluster.CRDv1)
			c.before(s)
			if err := calls[c.method](s, s.writer(s.group)); !errors.Is(err, repair.ErrChanged) || len(s.writes) > 0 {
				t.Errorf("got %v, and it wrote %v", err, s.writes)
			}
		})
	}
	t.Run("taken back, and taken meanwhile", func(t *testing.T) {
		s := newSmall(t, testcluster.CRDv1)
		was := s.objects[s.path(blocks.WhereaboutsPools, secondaryPool)]
		ref := s.ref(blocks.WhereaboutsPools, secondaryPool)
		if err := s.writer(s.group).RecordWhereabouts(t.Context(), &ref, 5, was, nil); !errors.Is(err, repair.ErrChanged) || len(s.writes) > 0 {
			t.Errorf("got %v, and it wrote %v", err, s.writes)
		}
	})
	t.Run("reserved for another pod meanwhile", func(t *testing.T) {
		s := newSmall(t, testcluster.CRDv1)
		was := s.objects[s.path(blocks.WhereaboutsReservations, reserved)]
		s.edit(s.path(blocks.WhereaboutsReservations, reserved), func(o map[string]any) { o["spec"].(map[string]any)["podref"] = "a/x" })
		if err := s.writer(s.group).RecordWhereabouts(t.Context(), nil, 0, nil, was); !errors.Is(err, repair.ErrChanged) || len(s.writes) > 0 {
			t.Errorf("got %v, and it wrote %v", err, s.writes)
		}
	})
}

// TestNamesakeWritesLate plays a new pod of the same name that exists when its
// reservation is deleted, and may have read it. If its Whereabouts records the address
// before its request ends, the reservation must be restored.
func TestNamesakeWritesLate(t *testing.T) {
	for method, at := range map[string]struct{ offset, pod, reservation string }{
		"ReleaseWhereabouts": {"5", "gone", reserved}, "DeleteWhereaboutsReservation": {"7", "left", reservedAlone},
	} {
		for name, writes := range map[string]bool{"and writes": true, "and gets another address": false} {
			t.Run(method+", "+name, func(t *testing.T) {
				s := newSmall(t, testcluster.CRDv1)
				was := s.get(s.path(blocks.WhereaboutsReservations, at.reservation))["spec"]
				s.objects["/api/v1/namespaces/a/pods/"+at.pod] = json.RawMessage(`{"kind":"Pod","metadata":{"name":"` + at.pod + `"}}`)
				looks := 0
				w := s.answering(func(r *http.Request) *http.Response {
					if path.Base(r.URL.Path) != "pods" {
						return nil
					}
					if looks++; looks == 2 && writes {
						s.edit(s.path(blocks.WhereaboutsPools, secondaryPool), func(o map[string]any) {
							o["spec"].(map[string]any)["allocations"].(map[string]any)[at.offset] = map[string]any{"id": "new", "podref": "a/" + at.pod, "ifname": "net1"}
						})
					}
					return nil
				})
				err := calls[method](s, w)
				now := s.get(s.path(blocks.WhereaboutsReservations, at.reservation))
				switch {
				case looks < 2:
					t.Errorf("the pod was looked for %d times", looks)
				case writes && (now == nil || !cmp.Equal(was, now["spec"])):
					t.Errorf("the reservation is %v, and was %v; %v", now, was, err)
				case !writes && (now != nil || err != nil):
					t.Errorf("the reservation is %v; %v", now, err)
				}
			})
		}
	}
}

// TestReservedMeanwhile plays two events after a reservation in use was deleted. If
// another pod reserves the address, the error must say so. If the pod ends, no
// reservation must remain.
func TestReservedMeanwhile(t *testing.T) {
	for method, at := range map[string]struct{ offset, pod, reservation string }{
		"ReleaseWhereabouts": {"5", "gone", reserved}, "DeleteWhereaboutsReservation": {"7", "left", reservedAlone},
	} {
		begin := func(t *testing.T, meanwhile func(s *small, r *http.Request, allocate func(entry any))) (*small, error) {
			s := newSmall(t, testcluster.CRDv1)
			s.objects["/api/v1/namespaces/a/pods/"+at.pod] = json.RawMessage(`{"kind":"Pod","metadata":{"name":"` + at.pod + `"}}`)
			allocate := func(entry any) {
				s.edit(s.path(blocks.WhereaboutsPools, secondaryPool), func(o map[string]any) {
					all := o["spec"].(map[string]any)["allocations"].(map[string]any)
					if all[at.offset] = entry; entry == nil {
						delete(all, at.offset)
					}
				})
			}
			looks := 0
			w := s.answering(func(r *http.Request) *http.Response {
				if path.Base(r.URL.Path) == "pods" {
					if looks++; looks == 2 {
						allocate(map[string]any{"id": "new", "podref": "a/" + at.pod, "ifname": "net1"})
					}
				}
				meanwhile(s, r, allocate)
				return nil
			})
			return s, calls[method](s, w)
		}
		t.Run(method+", for another pod", func(t *testing.T) {
			s, err := begin(t, func(s *small, r *http.Request, _ func(any)) {
				if r.Method == http.MethodPost {
					s.create(blocks.WhereaboutsReservations, at.reservation, map[string]any{"podref": "b/other", "ifname": "net1"})
				}
			})
			var left *repair.LeftBehindError
			if !errors.As(err, &left) || errors.Is(err, repair.ErrChanged) || !strings.Contains(err.Error(), "belongs to pod b/other, and pool "+secondaryPool+" records its address for pod a/"+at.pod) {
				t.Errorf("got %v", err)
			}
			if now := s.get(s.path(blocks.WhereaboutsReservations, at.reservation)); now == nil || now["spec"].(map[string]any)["podref"] != "b/other" {
				t.Errorf("the other pod's reservation is %v", now)
			}
		})
		t.Run(method+", and its pod ends", func(t *testing.T) {
			s, err := begin(t, func(s *small, r *http.Request, allocate func(any)) {
				if r.Method == http.MethodPost {
					allocate(nil)
					delete(s.objects, "/api/v1/namespaces/a/pods/"+at.pod)
				}
			})
			if now := s.get(s.path(blocks.WhereaboutsReservations, at.reservation)); err != nil || now != nil {
				t.Errorf("got %v, and the reservation is left: %v", err, now)
			}
		})
	}
}

// taken removes an object and returns it.
func (s *small) taken(r blocks.Resource, name string) json.RawMessage {
	was := s.objects[s.path(r, name)]
	delete(s.objects, s.path(r, name))
	return was
}

// each runs a test for each call in each API group.
func each(t *testing.T, test func(t *testing.T, s func(*testing.T) *small, call func(*small, *datastore.Writer) error)) {
	for _, group := range []testcluster.Group{testcluster.CRDv1, testcluster.NativeV3} {
		for name, call := range calls {
			t.Run(string(group)+"/"+name, func(t *testing.T) {
				test(t, func(t *testing.T) *small { return newSmall(t, group) }, call)
			})
		}
	}
}

// TestEveryWriteIsConditional checks that each method changes or deletes only the version
// and the UID that it has read, in both API groups.
func TestEveryWriteIsConditional(t *testing.T) {
	of := reflect.TypeFor[repair.Writer]()
	for i := range of.NumMethod() {
		if calls[of.Method(i).Name] == nil {
			t.Errorf("no case for %s", of.Method(i).Name)
		}
	}
	each(t, func(t *testing.T, world func(*testing.T) *small, call func(*small, *datastore.Writer) error) {
		s := world(t)
		if err := call(s, s.writer(s.group)); err != nil {
			t.Error(err)
		}
		if len(s.writes) == 0 {
			t.Error("nothing was written")
		}
		for _, w := range s.writes {
			if !w.done {
				t.Errorf("%s was refused", w.what)
			}
		}
	})
}

// TestWrittenBetweenReadAndWrite writes each object between the last read and each write
// of a step. A block is written as by a node that assigns an address. The step's write
// must then be rejected, and the address must stay assigned.
func TestWrittenBetweenReadAndWrite(t *testing.T) {
	each(t, func(t *testing.T, world func(*testing.T) *small, call func(*small, *datastore.Writer) error) {
		whole := world(t)
		must(t, call(whole, whole.writer(whole.group)))
		for i, w := range whole.writes {
			method, path, _ := strings.Cut(w.what, " ")
			if method == "POST" {
				continue // an existing object of that name makes it fail
			}
			s := world(t)
			assigned := -1
			s.before = func(n int, _ string) {
				if n == i+1 {
					s.edit(path, func(o map[string]any) { assigned = writtenByOther(o) })
				}
			}
			err := call(s, s.writer(s.group))
			if len(s.writes) <= i || s.writes[i].what != w.what || s.writes[i].done {
				t.Errorf("write %d, %s, was carried out although somebody wrote the object since (%v): %v", i+1, w.what, err, s.writes)
			}
			if assigned < 0 {
				continue
			}
			if o := s.get(path); o == nil || o["spec"].(map[string]any)["allocations"].([]any)[assigned] == nil {
				t.Errorf("write %d, %s: an address that was assigned in between is free (%v)", i+1, w.what, err)
			}
		}
	})
}

// writtenByOther changes an object as another client might. In a block it assigns an
// address and returns the ordinal; another object gets a label.
func writtenByOther(o map[string]any) (assigned int) {
	spec := o["spec"].(map[string]any)
	free, isBlock := spec["unallocated"].([]any)
	if !isBlock {
		o["metadata"].(map[string]any)["labels"] = map[string]any{"example.com/written": "since"}
		return -1
	}
	ordinal, attributes := int(free[len(free)-1].(float64)), spec["attributes"].([]any)
	spec["unallocated"] = free[:len(free)-1]
	spec["allocations"].([]any)[ordinal] = len(attributes)
	spec["attributes"] = append(attributes, map[string]any{"handle_id": "newcomer"})
	return ordinal
}

// TestSameWriteByAnother checks that the first write of a step does not count as the step's own
// if another client has written the same meanwhile: an undo would revert the other's write.
func TestSameWriteByAnother(t *testing.T) {
	// These succeed: the other's handle or reservation serves as well, or the object is gone.
	goesOn := regexp.MustCompile(`/(RecordIP_of|ReserveWhereabouts|Unreserve|DeleteWhereabouts|FinishDelete|DeleteAffinity_of_one_that_is_marked)`)
	each(t, func(t *testing.T, world func(*testing.T) *small, call func(*small, *datastore.Writer) error) {
		s, written := world(t), false
		err := call(s, s.failing(func(r *http.Request) (*http.Response, error) {
			if r.Method == http.MethodGet || written {
				return nil, nil
			}
			written = true
			body, err := io.ReadAll(r.Body)
			must(t, err)
			r.Body = io.NopCloser(bytes.NewReader(body))
			code, object := s.write(r.Method, r.URL.Path, body)
			if code >= 300 {
				t.Errorf("the other client's %s of %s was refused: %d", r.Method, r.URL.Path, code)
			}
			if r.Method != http.MethodPost {
				return nil, nil
			}
			var o struct{ Metadata struct{ Name string } }
			must(t, json.Unmarshal(object, &o))
			s.edit(r.URL.Path+"/"+o.Metadata.Name, func(o map[string]any) {
				o["metadata"].(map[string]any)["managedFields"] = []any{map[string]any{"manager": "calico-node"}}
			})
			return nil, errDead // without an answer, the step reads the object
		}))
		var left *repair.LeftBehindError // the other's mark
		if !errors.Is(err, repair.ErrChanged) && !errors.As(err, &left) && !goesOn.MatchString(t.Name()) {
			t.Errorf("got %v", err)
		}
	})
}

// TestPinned checks that a step writes nothing if its object was replaced by one with
// another UID, no longer exists or is being deleted.
func TestPinned(t *testing.T) {
	for name, change := range map[string]func(s *small, path string){
		"gone": func(s *small, path string) { delete(s.objects, path) },
		"being deleted": func(s *small, path string) {
			s.edit(path, func(o map[string]any) { o["metadata"].(map[string]any)["deletionTimestamp"] = "2026-01-02T12:00:00Z" })
		},
		"created again": func(s *small, path string) {
			o := s.get(path)
			delete(s.objects, path)
			s.put(path, o)
		},
	} {
		for method, call := range calls {
			if strings.HasPrefix(method, "Recreate") || strings.HasSuffix(method, "does not exist") || method == "CreateHandle" || strings.HasPrefix(method, "Claim") || strings.HasPrefix(method, "Reserve") {
				continue // its object must not exist yet
			}
			t.Run(name+"/"+method, func(t *testing.T) {
				s := newSmall(t, testcluster.CRDv1)
				s.reading = func(path string) { change(s, path) }
				if err := call(s, s.writer(s.group)); !errors.Is(err, repair.ErrChanged) {
					t.Errorf("got %v", err)
				}
				if len(s.writes) > 0 {
					t.Errorf("it wrote %v", s.writes)
				}
			})
		}
	}
}

// TestEveryLostAnswer loses the answer of each write, with and without the write being
// carried out. The step must end with the same result, and no write must be carried out
// twice.
func TestEveryLostAnswer(t *testing.T) {
	each(t, func(t *testing.T, world func(*testing.T) *small, call func(*small, *datastore.Writer) error) {
		whole := world(t)
		must(t, call(whole, whole.writer(whole.group)))
		for i, w := range whole.writes {
			for _, arrives := range []bool{true, false} {
				s := world(t)
				s.lost = func(n int) (bool, bool) { return n == i+1, arrives }
				if err := call(s, s.writer(s.group)); err != nil {
					t.Errorf("write %d, %s, arrived %t: %v", i+1, w.what, arrives, err)
				}
				if d := cmp.Diff(whole.specs(), s.specs()); d != "" {
					t.Errorf("write %d, %s, arrived %t (-undisturbed +now):\n%s", i+1, w.what, arrives, d)
				}
			}
		}
	})
}

// specs returns the specs of all objects.
func (s *small) specs() map[string]any {
	out := map[string]any{}
	for path := range s.objects {
		spec, _ := s.get(path)["spec"].(map[string]any)
		delete(spec, "affinityClaimTime")
		if strings.HasSuffix(path, blocks.BlockName(noBlock)) {
			delete(spec, "sequenceNumber") // the time of its claim
			delete(spec, "sequenceNumberForAllocation")
		}
		out[path] = spec
	}
	return out
}

// TestVirtualMachineStartsAgain checks that any write to the block since the evaluation
// is noticed, because a restarted machine keeps the handle and sequence number of its
// address.
func TestVirtualMachineStartsAgain(t *testing.T) {
	const machine = "k8s-pod-network.vmi.shop.db"
	s := newSmall(t, testcluster.CRDv1)
	path := s.path(blocks.Blocks, blocks.BlockName(inUse))
	s.edit(path, func(o map[string]any) {
		for _, a := range o["spec"].(map[string]any)["attributes"].([]any) {
			if a := a.(map[string]any); a["handle_id"] == "gone" {
				a["handle_id"] = machine
			}
		}
	})
	evaluated := s.blockRef(inUse)
	s.edit(path, func(o map[string]any) {
		for _, a := range o["spec"].(map[string]any)["attributes"].([]any) {
			if a := a.(map[string]any); a["handle_id"] == machine {
				a["secondary"] = map[string]any{"pod": "virt-launcher-db-1", "namespace": "shop", "node": "n1"}
			}
		}
	})
	if err := releaseOne(s.writer(s.group), t.Context(), evaluated, leaked, machine, leaked); !errors.Is(err, repair.ErrChanged) || len(s.writes) > 0 {
		t.Errorf("got %v, and it wrote %v", err, s.writes)
	}
}

// TestObjectAtHandForbids: a step is refused before anything is written if the object itself, or
// another object of its name, contradicts it, whatever was planned.
func TestObjectAtHandForbids(t *testing.T) {
	spec := func(o map[string]any) map[string]any { return o["spec"].(map[string]any) }
	config := func(strict bool) func(*small, *datastore.Writer) error {
		return func(s *small, k *datastore.Writer) error {
			ref := s.ref(blocks.IPAMConfigs, "default")
			return k.SetStrictAffinity(s.t.Context(), &ref, strict)
		}
	}
	for name, c := range map[string]struct {
		now  func(s *small)
		call func(s *small, k *datastore.Writer) error
	}{
		"an affinity that was made since": {func(*small) {}, func(s *small, k *datastore.Writer) error {
			return k.ReleaseBlock(s.t.Context(), s.blockRef(empty), nil, nil)
		}},
		"an address whose alternate owner is on the block's own node": {func(s *small) {
			s.edit(s.path(blocks.Blocks, blocks.BlockName(orphaned)), func(o map[string]any) {
				spec(o)["attributes"].([]any)[0].(map[string]any)["alternateOwnerAttrs"] = map[string]any{"node": "off"}
			})
		}, calls["DisownBlock"]},
		"a limit of blocks, which Calico rejects without strict affinity": {func(s *small) {
			s.edit(s.path(blocks.IPAMConfigs, "default"), func(o map[string]any) { spec(o)["strictAffinity"], spec(o)["maxBlocksPerHost"] = true, 2 })
		}, config(false)},
		"a configuration that was made since": {func(*small) {}, func(s *small, k *datastore.Writer) error {
			return k.SetStrictAffinity(s.t.Context(), nil, true)
		}},
		"an affinity of that name to another block": {func(s *small) {
			s.edit(s.path(blocks.Affinities, blocks.AffinityName("n3", noBlock)), func(o map[string]any) { spec(o)["cidr"] = "10.99.0.0/26" })
		}, calls["ClaimBlock"]},
		"a sequence number that is no number": {func(s *small) {
			s.edit(s.path(blocks.Blocks, blocks.BlockName(inUse)), func(o map[string]any) { spec(o)["sequenceNumber"] = "x" })
		}, calls["ReleaseIPs"]},
		"a negative sequence number": {func(s *small) {
			s.edit(s.path(blocks.Blocks, blocks.BlockName(inUse)), func(o map[string]any) { spec(o)["sequenceNumber"] = -1 })
		}, calls["ReleaseIPs"]},
		"a sequence number that cannot be raised": {func(s *small) {
			s.edit(s.path(blocks.Blocks, blocks.BlockName(inUse)), func(o map[string]any) { spec(o)["sequenceNumber"] = json.Number("9223372036854775807") })
		}, calls["ReleaseIPs"]},
		"an affinity with a mark that is no boolean": {func(s *small) {
			s.edit(s.path(blocks.Affinities, blocks.AffinityName("n3", noBlock)), func(o map[string]any) { spec(o)["deleted"] = "perhaps" })
		}, calls["DeleteAffinity"]},
		"an address that cools down": {func(s *small) {
			s.edit(s.path(blocks.Blocks, blocks.BlockName(inUse)), func(o map[string]any) {
				for _, a := range spec(o)["attributes"].([]any) {
					a.(map[string]any)["releasedAt"] = "2026-01-02T12:00:00Z"
				}
			})
		}, calls["ReleaseIPs"]},
		"a marked block with an address": {func(s *small) {
			s.edit(s.path(blocks.Blocks, blocks.BlockName(marked)), func(o map[string]any) { writtenByOther(o) })
		}, calls["FinishDelete"]},
		"a handle that is being deleted": {func(s *small) {
			s.handle(restored, inUse, 1)
			s.edit(s.path(blocks.Handles, restored), func(o map[string]any) {
				o["metadata"].(map[string]any)["deletionTimestamp"] = "2026-01-02T12:00:00Z"
				delete(spec(o), "block")
			})
		}, func(s *small, k *datastore.Writer) error {
			return k.RecordIP(s.t.Context(), s.blockRef(inUse), restoredAt, recordation(netip.Prefix{}, ""))
		}},
		"an ordinal that is given twice": {func(*small) {}, func(s *small, k *datastore.Writer) error {
			a := recordation(noBlock, "n3")
			a.Beside = []repair.Beside{{Ordinal: 3, Handle: "k8s-pod-network.x"}}
			return k.RecordIP(s.t.Context(), repair.ObjectRef{Resource: blocks.Blocks, Name: blocks.BlockName(noBlock)}, 3, a)
		}},
		"a handle of one address in use": {func(*small) {}, func(s *small, k *datastore.Writer) error {
			return k.DeleteHandle(s.t.Context(), s.ref(blocks.Handles, "a"))
		}},
		"a handle of a block that is marked deleted": {func(s *small) {
			s.edit(s.path(blocks.Blocks, blocks.BlockName(contested)), func(o map[string]any) { spec(o)["deleted"] = true })
		}, func(s *small, k *datastore.Writer) error {
			return k.CreateHandle(s.t.Context(), "c", []blocks.HandleCount{{CIDR: contested, Count: 1}})
		}},
		"a count of no address": {func(*small) {}, func(s *small, k *datastore.Writer) error {
			return k.SetHandleCounts(s.t.Context(), s.ref(blocks.Handles, "a"), []blocks.HandleCount{{CIDR: inUse, Count: 0}})
		}},
		"a handle that was marked deleted when it was written down": {func(*small) {}, func(s *small, k *datastore.Writer) error {
			s.edit(s.path(blocks.Handles, "a"), func(o map[string]any) { spec(o)["deleted"] = true })
			stored := s.taken(blocks.Handles, "a")
			delete(s.objects, s.path(blocks.Handles, "a"))
			s.create(blocks.Handles, "other", map[string]any{})
			return k.RecreateHandle(s.t.Context(), stored)
		}},
		"a block that is marked deleted": {func(s *small) {
			s.edit(s.path(blocks.Blocks, blocks.BlockName(inUse)), s.mark)
		}, calls["ReleaseIPs"]},
		"a block with a mark that is no boolean": {func(s *small) {
			s.edit(s.path(blocks.Blocks, blocks.BlockName(inUse)), func(o map[string]any) { spec(o)["deleted"] = "perhaps" })
		}, calls["ReleaseIPs"]},
		"an ordinal beyond the block": {func(*small) {}, func(s *small, k *datastore.Writer) error {
			return releaseOne(k, s.t.Context(), s.blockRef(inUse), 64, "gone", leaked)
		}},
		"an ordinal that is free": {func(*small) {}, func(s *small, k *datastore.Writer) error {
			return releaseOne(k, s.t.Context(), s.blockRef(inUse), 0, "", 0)
		}},
		"an allocation without attributes": {func(s *small) {
			s.edit(s.path(blocks.Blocks, blocks.BlockName(inUse)), func(o map[string]any) { spec(o)["allocations"].([]any)[leaked] = 2 })
		}, calls["ReleaseIPs"]},
		"an address with a sequence number that is no number": {func(s *small) {
			s.edit(s.path(blocks.Blocks, blocks.BlockName(inUse)), func(o map[string]any) { spec(o)["sequenceNumberForAllocation"] = map[string]any{"3": "x"} })
		}, func(s *small, k *datastore.Writer) error {
			return releaseOne(k, s.t.Context(), s.blockRef(inUse), leaked, "gone", 0)
		}},
		"an address that is also free": {func(s *small) {
			s.edit(s.path(blocks.Blocks, blocks.BlockName(inUse)), func(o map[string]any) { spec(o)["unallocated"] = []any{0, leaked} })
		}, calls["ReleaseIPs"]},
		"another address without attributes": {func(s *small) {
			s.edit(s.path(blocks.Blocks, blocks.BlockName(inUse)), func(o map[string]any) { spec(o)["allocations"].([]any)[1] = 2 })
		}, calls["ReleaseIPs"]},
		"a state that affinities do not have": {func(*small) {}, func(s *small, k *datastore.Writer) error {
			return k.PutAffinityState(s.t.Context(), s.affinityRef("n2", contested), "lost")
		}},
		"an affinity that is marked deleted": {func(s *small) {
			s.edit(s.path(blocks.Affinities, blocks.AffinityName("n2", contested)), s.mark)
		}, calls["PutAffinityState"]},
		"an affinity to no CIDR": {func(s *small) {
			s.edit(s.path(blocks.Affinities, blocks.AffinityName("n2", contested)), func(o map[string]any) { spec(o)["cidr"] = "x" })
		}, calls["PutAffinityState"]},
		"a block that no one owns": {func(*small) {}, func(s *small, k *datastore.Writer) error {
			return k.DisownBlock(s.t.Context(), s.blockRef(nobodys), nil)
		}},
		"an empty block": {func(*small) {}, func(s *small, k *datastore.Writer) error {
			a := s.affinityRef("n1", empty)
			return k.DisownBlock(s.t.Context(), s.blockRef(empty), &a)
		}},
		"a marked block": {func(s *small) {
			s.edit(s.path(blocks.Blocks, blocks.BlockName(orphaned)), s.mark)
		}, calls["DisownBlock"]},
		"an object that is not marked": {func(*small) {}, func(s *small, k *datastore.Writer) error {
			return k.FinishDelete(s.t.Context(), s.blockRef(empty))
		}},
		"an object with a mark that is no boolean": {func(s *small) {
			s.edit(s.path(blocks.Blocks, blocks.BlockName(marked)), func(o map[string]any) { spec(o)["deleted"] = "perhaps" })
		}, calls["FinishDelete"]},
		"an object of a kind that is never marked": {func(s *small) {
			s.edit(s.path(blocks.IPAMConfigs, "default"), s.mark)
		}, func(s *small, k *datastore.Writer) error {
			return k.FinishDelete(s.t.Context(), s.ref(blocks.IPAMConfigs, "default"))
		}},
		"a handle that would count too many": {func(s *small) {
			delete(s.objects, s.path(blocks.Handles, "gone"))
			s.handle("other", contested, 1)
		}, func(s *small, k *datastore.Writer) error {
			return k.CreateHandle(s.t.Context(), "gone", []blocks.HandleCount{{CIDR: inUse, Count: 2}})
		}},
		"an ordinal beyond the block, to record": {func(*small) {}, func(s *small, k *datastore.Writer) error {
			return k.RecordIP(s.t.Context(), s.blockRef(inUse), 64, recordation(netip.Prefix{}, ""))
		}},
		"an ordinal that is allocated": {func(*small) {}, func(s *small, k *datastore.Writer) error {
			return k.RecordIP(s.t.Context(), s.blockRef(inUse), 1, recordation(netip.Prefix{}, ""))
		}},
		"a kept block with a strange owner": {func(s *small) {
			s.edit(s.path(blocks.Blocks, blocks.BlockName(inUse)), func(o map[string]any) { spec(o)["affinity"] = 7 })
		}, calls["ReleaseBlock of a node that keeps another"]},
		"a block whose allocations are not a list": {func(s *small) {
			s.edit(s.path(blocks.Blocks, blocks.BlockName(empty)), func(o map[string]any) { spec(o)["allocations"] = map[string]any{} })
		}, calls["ReleaseBlock"]},
		"a reservation of that name": {func(s *small) {
			s.create(blocks.Reservations, "calico-audit-"+blocks.BlockName(noBlock), map[string]any{"reservedCIDRs": []any{noBlock.String()}})
		}, calls["Reserve"]},
	} {
		s := newSmall(t, testcluster.CRDv1)
		c.now(s)
		before := len(s.objects)
		if c.call == nil {
			t.Fatalf("%s: no call", name)
		}
		if err := c.call(s, s.writer(s.group)); err == nil || len(s.writes) > 0 || len(s.objects) != before {
			t.Errorf("%s: got %v, wrote %v", name, err, s.writes)
		}
	}
}

// TestRestoredForThatBlockAlone: a restored affinity is deleted again unless the block is still the
// same object and belongs to the affinity's host, even if the host owns a new block of that CIDR.
func TestRestoredForThatBlockAlone(t *testing.T) {
	at := "ipamblocks/" + blocks.BlockName(lost)
	for name, c := range map[string]struct {
		meanwhile func(s *small, at string)
		changed   bool
	}{
		"it is deleted": {func(s *small, at string) { delete(s.objects, at) }, true},
		"it is made again": {func(s *small, at string) {
			block := s.get(at)
			delete(s.objects, at)
			s.put(at, block)
		}, true},
		"it is another's": {func(s *small, at string) {
			s.edit(at, func(o map[string]any) { o["spec"].(map[string]any)["affinity"] = "host:n1" })
		}, true},
		"it is no one's": {func(s *small, at string) {
			s.edit(at, func(o map[string]any) { delete(o["spec"].(map[string]any), "affinity") })
		}, true},
		"it is marked": {func(s *small, at string) {
			s.edit(at, func(o map[string]any) { o["spec"].(map[string]any)["deleted"] = true })
		}, true},
		"it is being deleted": {func(s *small, at string) {
			s.edit(at, func(o map[string]any) { o["metadata"].(map[string]any)["deletionTimestamp"] = "2026-01-02T12:00:00Z" })
		}, true},
		"it cannot be read": {nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSmall(t, testcluster.CRDv1)
			k := s.answering(func(r *http.Request) *http.Response {
				if c.meanwhile == nil && len(s.writes) > 0 && r.Method == http.MethodGet && strings.HasSuffix(r.URL.Path, at) {
					return refusal(http.StatusForbidden, r.URL.Path)
				}
				return nil
			})
			s.before = func(n int, _ string) {
				if n == 1 && c.meanwhile != nil {
					c.meanwhile(s, s.path(blocks.Blocks, blocks.BlockName(lost)))
				}
			}
			err := k.RestoreAffinity(t.Context(), s.blockRef(lost))
			if err == nil || errors.Is(err, repair.ErrChanged) != c.changed || s.get(s.path(blocks.Affinities, blocks.AffinityName("n2", lost))) != nil {
				t.Errorf("got %v, wrote %v", err, s.writes)
			}
		})
	}
}
