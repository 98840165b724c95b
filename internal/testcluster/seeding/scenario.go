package seeding

import (
	"context"
	"crypto/sha256"
	"fmt"

	"github.com/projectcalico/calico/libcalico-go/lib/ipam"

	"github.com/calico-audit/calico-audit/internal/testcluster"
)

// begin returns a Seeder after it has written the objects of a fresh Calico installation.
func begin(ctx context.Context, c *testcluster.Cluster) (*Seeder, error) {
	s, err := New(c)
	if err == nil {
		err = s.start(ctx)
	}
	return s, err
}

func (s *Seeder) start(ctx context.Context) error {
	if err := s.Init(ctx); err != nil {
		return err
	}
	return s.SetIPAMConfig(ctx, ipam.IPAMConfig{AutoAllocateBlocks: true})
}

// wrap adds the failed operation to an error.
func wrap(err *error, doing string) {
	if *err != nil {
		*err = fmt.Errorf("%s: %w", doing, *err)
	}
}

// populate creates a node and its pods: calico-node on the host network, which does not
// count, one pod of kube-system, and pods in the namespace shop, which must exist.
func (s *Seeder) populate(ctx context.Context, node Node, pods int) error {
	if err := s.Node(ctx, node); err != nil {
		return err
	}
	agent := Pod{
		Namespace: "kube-system", Name: "calico-node-" + suffix(node.Name), Node: node.Name,
		Labels: map[string]string{"k8s-app": "calico-node"}, HostNetwork: true,
	}
	all := []Pod{agent}
	for i := range pods {
		all = append(all, workload(node.Name, i))
	}
	return s.Pods(ctx, all)
}

// workload returns the i-th pod of a node in a scenario. Its name depends only on node
// and i, so that a scenario is always the same.
func workload(node string, i int) Pod {
	unique := suffix(fmt.Sprintf("%s/%d", node, i))
	if i == 0 {
		return Pod{
			Namespace: "kube-system", Name: "coredns-5d78c9869d-" + unique, Node: node,
			Labels: map[string]string{"k8s-app": "kube-dns"},
		}
	}
	apps := []struct{ name, revision string }{
		{"cart", "6bb7c5f4d9"}, {"catalog", "7f9d8c6b54"}, {"checkout", "59c4f8d7bb"}, {"web", "84d6b9c7f5"},
	}
	app := apps[i%len(apps)]
	return Pod{
		Namespace: "shop", Name: app.name + "-" + app.revision + "-" + unique, Node: node,
		Labels: map[string]string{"app": app.name},
	}
}

// suffix returns five characters like the random suffix of Kubernetes' pod names. They
// depend only on the argument.
func suffix(of string) string {
	const alphabet = "bcdfghjklmnpqrstvwxz2456789"
	sum := sha256.Sum256([]byte(of))
	out := make([]byte, 5)
	for i := range out {
		out[i] = alphabet[int(sum[i])%len(alphabet)]
	}
	return string(out)
}
