package testcluster

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"strings"
)

// Calicoctl runs Calico's own tool, of the release that the main module is
// built with, as the cluster's administrator, and returns what it prints on
// stdout. It only knows crd.projectcalico.org/v1.
func (c *Cluster) Calicoctl(ctx context.Context, args ...string) (string, error) {
	path, err := Binary(ctx, "calicoctl")
	if err != nil {
		return "", err
	}
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Env = []string{"DATASTORE_TYPE=kubernetes", "KUBECONFIG=" + c.KubeconfigPath()}
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return stdout.String(), fmt.Errorf("calicoctl %s: %w\n%s", strings.Join(args, " "), err, lastBytes(stderr.Bytes(), 2000))
	}
	return stdout.String(), nil
}
