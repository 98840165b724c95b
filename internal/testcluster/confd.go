package testcluster

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/calico-audit/calico-audit/internal/testcluster/programs"
)

// birdFiles lists the files that confd renders for a node's two BIRDs, with the prefix
// and keys that their templates read, from confd/etc/calico/confd/conf.d.
var birdFiles = []struct {
	name, prefix string
	keys         []string
}{
	{"bird.cfg", "/calico/", []string{"/bgp/v1/host", "/bgp/v1/global", "/resources/v3/projectcalico.org/bgpfilters"}},
	{"bird_aggr.cfg", "/calico/", []string{"/bgp/v1/host", "/bgp/v1/global", "/ipam/v2/host//NODENAME/ipv4/block", "/staticroutes"}},
	{"bird_ipam.cfg", "/calico", []string{"/v1/ipam/v4/pool", "/bgp/v1/host//NODENAME", "/bgp/v1/global/svc_loadbalancer_ips", "/staticroutes", "/rejectcidrs"}},
	{"bird6.cfg", "/calico/", []string{"/bgp/v1/host", "/bgp/v1/global", "/resources/v3/projectcalico.org/bgpfilters"}},
	{"bird6_aggr.cfg", "/calico/", []string{"/bgp/v1/host", "/bgp/v1/global", "/ipam/v2/host//NODENAME/ipv6/block", "/staticroutesv6"}},
	{"bird6_ipam.cfg", "/calico", []string{"/v1/ipam/v6/pool", "/bgp/v1/host//NODENAME", "/bgp/v1/global/svc_loadbalancer_ips", "/staticroutesv6", "/rejectcidrsv6"}},
}

// Confd renders the configuration of a node's BIRDs for IPv4 and IPv6 from the cluster's
// current state. It uses Calico's own confd and the templates of the same release. It
// returns the files by name.
func (c *Cluster) Confd(ctx context.Context, node string) (map[string]string, error) {
	files, err := c.confd(ctx, node)
	if err != nil {
		return nil, fmt.Errorf("rendering the BIRD configuration of node %s: %w", node, err)
	}
	return files, nil
}

func (c *Cluster) confd(ctx context.Context, node string) (map[string]string, error) {
	dir, err := os.MkdirTemp(c.dir, "confd-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	config, err := c.confdFiles(ctx, dir)
	if err != nil {
		return nil, err
	}
	env := []string{"NODENAME=" + node, "DATASTORE_TYPE=kubernetes", "KUBECONFIG=" + c.KubeconfigPath(), "PATH=" + os.Getenv("PATH")}
	output, err := programs.Run(ctx, "confd", env, "-onetime", "-confdir", dir, "-calicoconfig", config)
	if err != nil {
		return nil, err
	}
	rendered := map[string]string{}
	for _, f := range birdFiles {
		content, err := os.ReadFile(filepath.Join(dir, "out", f.name))
		if err != nil {
			return nil, fmt.Errorf("%w\n%s", err, output)
		}
		rendered[f.name] = string(content)
	}
	return rendered, nil
}

// confdFiles writes confd's input to dir and returns the path of its client
// configuration. Calico's own template resources name absolute paths and commands that
// restart BIRD; these name paths in dir and no commands.
func (c *Cluster) confdFiles(ctx context.Context, dir string) (string, error) {
	calico, err := programs.CalicoDir(ctx)
	if err != nil {
		return "", err
	}
	for _, sub := range []string{"conf.d", "out"} {
		if err := os.Mkdir(filepath.Join(dir, sub), 0o755); err != nil {
			return "", err
		}
	}
	templates := filepath.Join(calico, "confd", "etc", "calico", "confd", "templates")
	if err := os.Symlink(templates, filepath.Join(dir, "templates")); err != nil {
		return "", err
	}
	for _, f := range birdFiles {
		text := fmt.Sprintf("[template]\nsrc = %q\ndest = %q\nprefix = %q\nkeys = [\"%s\"]\n",
			f.name+".template", filepath.Join(dir, "out", f.name), f.prefix, strings.Join(f.keys, `", "`))
		name := strings.TrimSuffix(f.name, ".cfg") + ".toml"
		if err := os.WriteFile(filepath.Join(dir, "conf.d", name), []byte(text), 0o644); err != nil {
			return "", err
		}
	}
	client := filepath.Join(dir, "client.yaml")
	text := fmt.Sprintf("apiVersion: projectcalico.org/v3\nkind: CalicoAPIConfig\nmetadata: {}\nspec: {datastoreType: kubernetes, kubeconfig: %q}\n", c.KubeconfigPath())
	return client, os.WriteFile(client, []byte(text), 0o600)
}
