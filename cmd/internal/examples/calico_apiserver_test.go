package examples_test

import (
	"maps"
	"net/netip"
	"strings"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/calico-audit/calico-audit/cmd/internal/cli/clitest"
	"github.com/calico-audit/calico-audit/internal/testcluster"
	"github.com/calico-audit/calico-audit/internal/testcluster/seeding"
)

// revisions returns the revision of each object of Calico in etcd, which every write changes.
func (r *railed) revisions() map[string]int64 {
	r.t.Helper()
	stored, err := r.Etcd.Get(r.t.Context(), "/registry/crd.projectcalico.org/", clientv3.WithPrefix(), clientv3.WithKeysOnly())
	r.must(err)
	out := map[string]int64{}
	for _, kv := range stored.Kvs {
		out[string(kv.Key)] = kv.ModRevision
	}
	return out
}

// untouched fails the test unless a request is refused before anything is written, with a
// message that contains the text.
func (r *railed) untouched(text string, request func() error) {
	r.t.Helper()
	before := r.revisions()
	r.refused(request(), text)
	if after := r.revisions(); !maps.Equal(after, before) {
		r.t.Errorf("objects changed: %v, before: %v", after, before)
	}
}

// disable returns a request that disables or enables a pool.
func (r *railed) disable(group testcluster.Group, pool, disabled string) func() error {
	return func() error { return r.patch(group, "ippools", pool, `{"spec":{"disabled":`+disabled+`}}`) }
}

// TestGuardRailsAndCalicoAPIServer: the real calico-apiserver deletes a pool by several writes.
// For a pool in use, the first is refused, for pools of all origins. Other work with pools passes.
func TestGuardRailsAndCalicoAPIServer(t *testing.T) {
	c := testcluster.Start(t, testcluster.Options{})
	c.StartCalicoAPIServer(t)
	r := railsOn(t, c, "guard-rails", testcluster.CRDv1)
	ctx := t.Context()
	const crd, native = testcluster.CRDv1, testcluster.NativeV3

	// Calico's client made pool pods. kubectl uses calico-apiserver. Calico's operator writes the CRD's
	// objects.
	pools := map[string]string{"pods": "10.7.0.0/30", "by-kubectl": "10.9.0.0/30", "by-operator": "10.10.0.0/30"}
	for name, group := range map[string]testcluster.Group{"by-kubectl": native, "by-operator": crd} {
		r.must(r.Create(ctx, group.Resource("ippools"), map[string]any{
			"metadata": map[string]any{"name": name},
			"spec":     map[string]any{"cidr": strings.Replace(pools[name], "/30", "/28", 1), "blockSize": int64(30)},
		}))
		r.must(r.s.ClaimBlocks(ctx, "a", netip.MustParsePrefix(pools[name])))
		_, err := r.s.Pod(ctx, seeding.Pod{Namespace: "default", Name: name, Node: "a", Annotations: map[string]string{"cni.projectcalico.org/ipv4pools": `["` + name + `"]`}})
		r.must(err)
	}
	for name := range pools {
		for _, group := range []testcluster.Group{crd, native} {
			clitest.Await(t, "deletions are refused", func() bool { return r.remove(group, "ippools", name, metav1.DryRunAll) != nil })
		}
	}

	for name, block := range pools {
		t.Run(name, func(t *testing.T) {
			r := &railed{Cluster: c, t: t, s: r.s}
			remove := func() error { return r.remove(native, "ippools", name) }
			r.untouched(block, func() error { _, err := r.Kubectl(ctx, "delete", "ippool", name); return err })
			r.untouched(block, func() error { return r.remove(native, "ippools", name, metav1.DryRunAll) })
			for _, policy := range []metav1.DeletionPropagation{metav1.DeletePropagationForeground, metav1.DeletePropagationOrphan} {
				r.untouched(block, func() error {
					return r.of(native, "ippools").Delete(ctx, name, metav1.DeleteOptions{PropagationPolicy: &policy})
				})
			}
			r.untouched(block, func() error {
				return r.of(native, "ippools").DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{FieldSelector: "metadata.name=" + name})
			})
			r.must(r.patch(native, "ippools", name, `{"spec":{"nodeSelector":"has(pool)","natOutgoing":true}}`))

			// People disable a pool before they delete it.
			group := native
			if name == "pods" {
				command := `kubectl patch ippools.crd.projectcalico.org pods --type=merge -p '{"spec":{"disabled":true}}'`
				r.untouched(command, r.disable(native, name, "true"))
				group = crd // as the command does
				// The deletion of a disabled pool may release its empty blocks first.
				r.must(r.s.ReleaseBlocks(ctx, "b", netip.MustParsePrefix("10.7.0.4/30"), true))
			}
			r.must(r.disable(group, name, "true")())
			r.untouched("block "+block+" holds allocations", remove)
			r.must(r.disable(native, name, "false")())
			r.untouched(block, remove)
		})
	}
	// Without addresses in use, pools are deleted together with their blocks.
	for name := range pools {
		pod := name
		if name == "pods" {
			pod = "web"
		}
		r.must(r.s.DeletePod(ctx, "default", pod, true))
		r.must(r.remove(native, "ippools", name))
	}
	r.must(r.remove(native, "ippools", "spare"))
	if pools, blocks := r.list(crd, "ippools"), r.list(crd, "ipamblocks"); len(pools)+len(blocks) > 0 {
		t.Errorf("%d pools and %d blocks are left", len(pools), len(blocks))
	}
}
