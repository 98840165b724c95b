package agents

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"

	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/blocks/cluster"
	"github.com/calico-audit/calico-audit/blocks/cluster/request"
)

// A Reader reads the response of a node's agent. authenticated reports whether the
// connection proved the agent's identity.
type Reader func(source, node string, text []byte, authenticated bool) blocks.HostReading

// Options control how a cluster's agents are found and queried.
type Options struct {
	// Selector is the label selector of the agents' pods.
	Selector string
	// Namespace is the namespace of these pods; empty means any.
	Namespace string
	// Timeout is the limit per agent; zero means [DefaultTimeout]. All agents together get
	// ten times as long.
	Timeout time.Duration
	// Scheme is "http" or "https". If it is empty, the pod's annotation [SchemeAnnotation]
	// decides; the default is http.
	Scheme string
	// TLS makes the client query agents directly, over connections that authenticate them.
	// Nil means to query them through the API server.
	TLS *TLS
	// Since holds, by node, the times of previous views, to request newer ones. A view that
	// is not newer is marked [blocks.HostView.Earlier].
	Since map[string]time.Time
	// Progress is called after each response. Calls do not overlap.
	Progress func(done, total int)
}

const (
	// DefaultSelector selects the agents of examples/kubernetes/agent.
	DefaultSelector = "app.kubernetes.io/name=calico-audit-agent"
	// DefaultTimeout is the limit per agent.
	DefaultTimeout = 10 * time.Second
	// SchemeAnnotation on an agent's pod is "https" if the agent uses TLS.
	SchemeAnnotation = "calico-audit/agent-scheme"
	// Path is the path of an agent's host view.
	Path = "/hostview"

	agentPortName = "agent"
	// agentBlocks is the query parameter for the node's own blocks. The agent omits the
	// same routes as [blocks.HostView.TellingRoutes].
	agentBlocks = "blocks"
	// agentNewerThan is the query parameter for the time that the view must be newer than.
	// Agents that do not know it serve their current view.
	agentNewerThan = "newerThan"
	// agentsAtOnce limits concurrent queries, and maxAgentView the size of each response in
	// bytes. Together they limit the memory of all responses.
	agentsAtOnce = 32
	maxAgentView = 16 << 20
)

// agent holds the relevant data of an agent's pod.
type agent struct {
	node, namespace, pod, ip, scheme string
	port                             int
	phase                            corev1.PodPhase
	leaving, ready                   bool
	created                          time.Time
}

func agentOf(p *corev1.Pod) agent {
	return agent{
		node: p.Spec.NodeName, namespace: p.Namespace, pod: p.Name, ip: p.Status.PodIP, port: agentPort(p),
		scheme: p.Annotations[SchemeAnnotation], phase: p.Status.Phase, leaving: p.DeletionTimestamp != nil, created: p.CreationTimestamp.Time,
		ready: slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
			return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
		}),
	}
}

func (a *agent) source() string { return "pod " + a.namespace + "/" + a.pod }

// better reports whether a should be queried instead of b, another agent on the same node.
func (a *agent) better(b *agent) bool {
	for _, is := range [][2]bool{{!a.leaving, !b.leaving}, {a.phase == corev1.PodRunning, b.phase == corev1.PodRunning}, {a.ready, b.ready}} {
		if is[0] != is[1] {
			return is[0]
		}
	}
	return a.created.After(b.created)
}

// agentPort returns the container port named "agent", or else the first.
func agentPort(p *corev1.Pod) int {
	first := 0
	for _, c := range p.Spec.Containers {
		for _, port := range c.Ports {
			if port.Name == agentPortName {
				return int(port.ContainerPort)
			}
			first = cmp.Or(first, int(port.ContainerPort))
		}
	}
	return first
}

// Views queries the agents of the cluster's nodes for their host views, and passes each
// response to read, which must be safe for concurrent use. Without [Options.TLS], agents
// are queried through the API server. That requires the right to get pods/proxy, and does
// not authenticate the agents, so the views are not authenticated. A node without an agent,
// or whose agent cannot be queried, is a gap. Views returns an error only if ctx ends.
func Views(ctx context.Context, pods *cluster.Pods, s *blocks.Snapshot, read Reader, opts Options) (blocks.HostReading, error) {
	opts.Timeout = cmp.Or(opts.Timeout, DefaultTimeout)
	agents, err := list(ctx, pods, opts)
	if ctx.Err() != nil {
		return blocks.HostReading{}, ctx.Err()
	}
	if err != nil {
		return blocks.JoinHostReadings(blocks.HostReading{Gaps: []blocks.HostGap{{Reason: unlisted(err)}}}), nil
	}
	byNode, order, gaps := chooseAgents(s, agents, opts)
	own := ownBlocks(s)
	readings, errs := make([]blocks.HostReading, len(order)), make([]error, len(order))
	bounded, stop := context.WithTimeout(ctx, 10*opts.Timeout)
	defer stop()
	var group errgroup.Group
	group.SetLimit(agentsAtOnce)
	var shown sync.Mutex
	done := 0
	for i, node := range order {
		group.Go(func() error {
			a := byNode[node]
			body, err := a.ask(bounded, pods, opts, own[node], opts.Since[node], maxAgentView)
			// Each response is decoded immediately, so at most the concurrent responses are
			// in memory.
			if errs[i] = err; err == nil {
				readings[i] = read(a.source(), node, body, opts.TLS != nil)
				for j := range readings[i].Views {
					v := &readings[i].Views[j]
					v.Earlier = !v.TakenAt.After(opts.Since[node])
				}
			}
			shown.Lock()
			defer shown.Unlock()
			if done++; opts.Progress != nil {
				opts.Progress(done, len(order))
			}
			return nil
		})
	}
	_ = group.Wait() // the functions return no errors: failures are in errs
	if ctx.Err() != nil {
		return blocks.HostReading{}, ctx.Err()
	}
	for i, node := range order {
		if errs[i] != nil {
			gaps = append(gaps, blocks.HostGap{Node: node, Source: byNode[node].source(), Reason: agentReason(errs[i], bounded, opts.Timeout)})
		}
	}
	return blocks.JoinHostReadings(append(readings, blocks.HostReading{Gaps: gaps})...), nil
}

// unlisted explains why the agents are unknown.
func unlisted(err error) string {
	var status *request.StatusError
	if errors.As(err, &status) && status.Code == http.StatusForbidden {
		return "the agents could not be found: forbidden: needs the right to list pods"
	}
	return "the agents could not be found: " + err.Error()
}

// list lists the agents' pods.
func list(ctx context.Context, pods *cluster.Pods, opts Options) (out []agent, err error) {
	err = pods.List(ctx, opts.Namespace, opts.Selector, func(p *corev1.Pod) { out = append(out, agentOf(p)) })
	return out, err
}

// ownBlocks returns the blocks of each node.
func ownBlocks(s *blocks.Snapshot) map[string][]netip.Prefix {
	out := map[string][]netip.Prefix{}
	for i := range s.Blocks {
		if node := s.Blocks[i].Owner.Node(); node != "" {
			out[node] = append(out[node], s.Blocks[i].CIDR)
		}
	}
	return out
}

// chooseAgents selects an agent for each node. Nodes without a usable agent become gaps.
func chooseAgents(s *blocks.Snapshot, agents []agent, opts Options) (byNode map[string]*agent, order []string, gaps []blocks.HostGap) {
	byNode = map[string]*agent{}
	gap := func(node, source, reason string) {
		gaps = append(gaps, blocks.HostGap{Node: node, Source: source, Reason: reason})
	}
	where := "in any namespace"
	if opts.Namespace != "" {
		where = "in namespace " + opts.Namespace
	}
	if len(agents) == 0 {
		gap("", "", fmt.Sprintf("no agent was found: no pod %s has the labels %s", where, opts.Selector))
		return byNode, nil, gaps
	}
	for i := range agents {
		if a := &agents[i]; a.node != "" && (byNode[a.node] == nil || a.better(byNode[a.node])) {
			byNode[a.node] = a
		}
	}
	ours := map[string]bool{}
	if _, missing := s.Missing(blocks.Nodes); !missing {
		for _, unread := range s.Unreadable(blocks.Nodes) {
			ours[unread.Name] = true
		}
	}
	asked := func(a *agent) bool { return a.phase == corev1.PodRunning && a.port != 0 }
	for i := range s.Nodes {
		n := &s.Nodes[i]
		a := byNode[n.Name]
		ours[n.Name] = true
		switch {
		case a == nil && n.Windows:
			gap(n.Name, "", "no agent runs on it: the agent reads Linux kernels, and the node runs Windows")
		case a == nil:
			gap(n.Name, "", fmt.Sprintf("no agent runs on it: no pod %s with the labels %s is bound to it", where, opts.Selector))
		case asked(a):
			order = append(order, n.Name)
		case a.phase != corev1.PodRunning:
			gap(n.Name, a.source(), fmt.Sprintf("its agent's pod is not running, but %s", cmp.Or(a.phase, "of no phase")))
		default:
			gap(n.Name, a.source(), fmt.Sprintf("its agent's pod names no container port, neither %q nor another", agentPortName))
		}
	}
	// After its Node object is deleted, a machine may keep running, with its agent.
	for node, a := range byNode {
		if !ours[node] && asked(a) {
			order = append(order, node)
		}
	}
	slices.Sort(order)
	return byNode, order, gaps
}
