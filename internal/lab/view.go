package lab

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/calico-audit/calico-audit/affinity/host"
	"github.com/calico-audit/calico-audit/blocks"
)

// envScan makes a copy of the test executable scan the namespace that it runs in,
// as the node that the variable names, and print the view.
const envScan = "CALICO_AUDIT_LAB_SCAN"

// ScanIfAsked is to be called by TestMain. In a copy of the executable that
// [Lab.View] has started it scans, and returns true.
func ScanIfAsked(ctx context.Context) (bool, error) {
	node := os.Getenv(envScan)
	if node == "" {
		return false, nil
	}
	view, err := host.Scan(ctx, host.Options{Node: node})
	if err != nil {
		return true, err
	}
	return true, json.NewEncoder(os.Stdout).Encode(view)
}

// machineScript runs a program as it would run on a machine of its own, though
// without a kernel of its own: it sees no processes but its own and those it starts,
// and of the named network namespaces those of the node's pods. $1 is an empty
// directory, $2 a list of namespaces; the program follows.
const machineScript = `set -e
dir=$1 pods=$2
shift 2
for ns in $pods; do
	touch "$dir/cni-$ns"
	mount --bind "/run/netns/$ns" "$dir/cni-$ns"
done
mount --rbind "$dir" /run/netns
exec unshare --pid --fork --kill-child --mount-proc "$@"`

// onMachine runs a program as if the node were a machine of its own.
func (l *Lab) onMachine(ctx context.Context, node string, program ...string) (string, error) {
	dir, err := os.MkdirTemp(l.dir, "netns-")
	if err != nil {
		return "", err
	}
	var pods []string
	for _, w := range l.Workloads {
		if w.Node.Name == node {
			pods = append(pods, w.name)
		}
	}
	slices.Sort(pods)
	args := append([]string{"sh", "-c", machineScript, "machine", dir, strings.Join(pods, " ")}, program...)
	return l.Nodes[node].Run(ctx, args...)
}

// View is what calico-audit's agent sees on a node.
func (l *Lab) View(ctx context.Context, node string) (*blocks.HostView, error) {
	return l.ViewAfter(ctx, node, "true")
}

// ViewAfter is what the agent sees on a node after a shell script was run there, which
// may leave processes behind. They end with the scan.
func (l *Lab) ViewAfter(ctx context.Context, node, script string) (*blocks.HostView, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	text, err := l.onMachine(ctx, node, "sh", "-c", script+"\nexec env "+envScan+"="+node+" \"$0\"", self)
	if err != nil {
		return nil, fmt.Errorf("scanning node %s: %w", node, err)
	}
	view := &blocks.HostView{}
	if err := json.Unmarshal([]byte(text), view); err != nil {
		return nil, fmt.Errorf("reading the view of node %s: %w\n%s", node, err, text)
	}
	view.Source = filepath.Join("lab", node+".json")
	// As a reader of the agent's output knows.
	view.RulesKnown = true
	return view, nil
}
