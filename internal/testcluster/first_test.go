package testcluster

import (
	"errors"
	"io/fs"
	"os"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/calico-audit/calico-audit/internal/testcluster/programs"
)

// TestFirstState starts a cluster from the saved state of another one. Both must serve the same
// objects but have different identities.
func TestFirstState(t *testing.T) {
	SkipIfShort(t)
	opts := Options{Groups: []Group{CRDv1}, APIServerArgs: []string{"--v=0"}} // a set of options that no other test uses
	path, err := programs.Binary(t.Context(), "kube-apiserver")
	if err != nil {
		t.Fatal(err)
	}
	first, err := newFirstState(t.Context(), path, opts)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(first.path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	var uids []string
	var roles []int
	for range 2 {
		c := Start(t, opts)
		namespace, err := c.Kube.CoreV1().Namespaces().Get(t.Context(), "kube-system", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		list, err := c.Kube.RbacV1().ClusterRoles().List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range CRDv1.Resources() {
			if _, err := c.List(t.Context(), r); err != nil {
				t.Error(err)
			}
		}
		uids, roles = append(uids, string(namespace.UID)), append(roles, len(list.Items))
	}
	if _, err := os.Stat(first.path); err != nil {
		t.Error(err)
	}
	if uids[0] == uids[1] {
		t.Error("two clusters have one UID")
	}
	if roles[0] != roles[1] || roles[0] == 0 {
		t.Errorf("clusters have %v roles", roles)
	}
}
