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

// envScan makes a copy of the test executable scan its namespace for the named node and
// print the view.
const envScan = "CALICO_AUDIT_LAB_SCAN"

// ScanIfAsked must be called by TestMain. In a copy of the executable that [Lab.View]
// started, it scans and returns true.
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

// machineScript runs a program almost as on a separate machine, except for the shared
// kernel. The program sees only its own processes, and only the named network namespaces
// of the node's pods. $1 is an empty directory, $2 a list of namespaces; the program
// follows.
const machineScript = `set -e
dir=$1 pods=$2
shift 2
for ns in $pods; do
	touch "$dir/cni-$ns"
	mount --bind "/run/netns/$ns" "$dir/cni-$ns"
done
mount --rbind "$dir" /run/netns
exec unshare --pid --fork --kill-child --mount-proc "$@"`

// onMachine runs a program as if the node were a separate machine.
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

// View returns the host view of calico-audit's agent on a node.
func (l *Lab) View(ctx context.Context, node string) (*blocks.HostView, error) {
	return l.ViewAfter(ctx, node, "true")
}

// ViewAfter returns the agent's host view after a shell script ran on the node. Processes
// that the script leaves behind end with the scan.
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
	// A reader of the agent's output sets this, too.
	view.RulesKnown = true
	return view, nil
}
