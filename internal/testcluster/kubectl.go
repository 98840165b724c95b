package testcluster

import (
	"context"

	"github.com/calico-audit/calico-audit/internal/testcluster/programs"
)

// Kubectl runs kubectl of the API server's release as the cluster's administrator and
// returns its stdout.
func (c *Cluster) Kubectl(ctx context.Context, args ...string) (string, error) {
	return programs.Run(ctx, "kubectl", []string{"HOME=" + c.dir, "KUBECONFIG=" + c.KubeconfigPath()}, args...)
}

// Calicoctl runs calicoctl of the main module's Calico release as the cluster's
// administrator and returns its stdout. It supports only crd.projectcalico.org/v1.
func (c *Cluster) Calicoctl(ctx context.Context, args ...string) (string, error) {
	return programs.Run(ctx, "calicoctl", []string{"DATASTORE_TYPE=kubernetes", "KUBECONFIG=" + c.KubeconfigPath()}, args...)
}
