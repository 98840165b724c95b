package testcluster

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"strings"
)

// Kubectl runs kubectl, of the API server's release, as the cluster's administrator,
// and returns what it prints on stdout.
func (c *Cluster) Kubectl(ctx context.Context, args ...string) (string, error) {
	path, err := Binary(ctx, "kubectl")
	if err != nil {
		return "", err
	}
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Env = []string{"HOME=" + c.dir, "KUBECONFIG=" + c.KubeconfigPath()}
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return stdout.String(), fmt.Errorf("kubectl %s: %w\n%s", strings.Join(args, " "), err, lastBytes(stderr.Bytes(), 2000))
	}
	return stdout.String(), nil
}
