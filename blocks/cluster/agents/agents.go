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
)

// An Reader reads the answer of the agent on a node. It is authenticated if the
// connection proved that an agent gave it.
type Reader func(source, node string, text []byte, authenticated bool) blocks.HostReading

// Options say how the agents of a cluster are found and asked.
type Options struct {
	// Selector is the label selector of the agents' pods.
	Selector string
	// Namespace is theirs; empty means any.
	Namespace string
	// Timeout is how long one agent may take; zero means [DefaultTimeout]. All
	// together may take ten times as long.
	Timeout time.Duration
	// Scheme is "http" or "https"; empty means what the pod's annotation
	// [SchemeAnnotation] says, else http.
	Scheme string
	// TLS has the agents asked directly, over connections that prove who answers; nil
	// has them asked through the API server.
	TLS *TLS
	// Since says of nodes when the views were taken that they gave before: they are asked
	// for newer ones. A view that is none is [blocks.HostView.Earlier].
	Since map[string]time.Time
	// Progress is called after each answer, by one goroutine at a time.
	Progress func(done, total int)
}

const (
	// DefaultSelector finds the agents of examples/kubernetes/agent.
	DefaultSelector = "app.kubernetes.io/name=calico-audit-agent"
	// DefaultTimeout is how long one agent may take.
	DefaultTimeout = 10 * time.Second
	// SchemeAnnotation on an agent's pod says "https" where it speaks TLS.
	SchemeAnnotation = "calico-audit/agent-scheme"
	// Path is where an agent serves its host view.
	Path = "/hostview"

	agentPortName = "agent"
	// agentBlocks is the parameter that names the node's own blocks, so that the agent
	// leaves out the routes that [blocks.HostView.TellingRoutes] does.
	agentBlocks = "blocks"
	// agentNewerThan is the parameter that names the time after which the view is to be
	// taken. An agent that does not know it serves what it has.
	agentNewerThan = "newerThan"
	// agentsAtOnce limits how many agents are asked at once, and maxAgentView how
	// much one may answer: together they limit the memory that it takes.
	agentsAtOnce = 32
	maxAgentView = 16 << 20
)

// agent is what counts of an agent's pod.
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

// better reports whether an agent is rather to be asked than another of its node.
func (a *agent) better(b *agent) bool {
	for _, is := range [][2]bool{{!a.leaving, !b.leaving}, {a.phase == corev1.PodRunning, b.phase == corev1.PodRunning}, {a.ready, b.ready}} {
		if is[0] != is[1] {
			return is[0]
		}
	}
	return a.created.After(b.created)
}

// agentPort is the container port named "agent", else the first.
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

// Views asks the agents of the cluster's nodes for their host views, and gives each
// answer to read, by several goroutines at once. Without [Options.TLS] they are asked
// through the API server, which takes the right to get pods/proxy and does not make sure
// who answers, so that the views are not authenticated. A node whose agent cannot be asked,
// or that has none, is a gap. Only the end of ctx is an error.
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
			// Each is decoded at once, so that no more text is kept than is asked for.
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
	_ = group.Wait() // no function returns an error: each is a node's own
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

// unlisted says why the agents are not known.
func unlisted(err error) string {
	var status *cluster.StatusError
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

// ownBlocks returns each node's own blocks.
func ownBlocks(s *blocks.Snapshot) map[string][]netip.Prefix {
	out := map[string][]netip.Prefix{}
	for i := range s.Blocks {
		if node := s.Blocks[i].Owner.Node(); node != "" {
			out[node] = append(out[node], s.Blocks[i].CIDR)
		}
	}
	return out
}

// chooseAgents picks an agent for each node, and notes the nodes that have none that
// could be asked.
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
			gap(n.Name, a.source(), fmt.Sprintf("its agent's pod names no container port, %q or other", agentPortName))
		}
	}
	// A machine whose Node object is gone may run on, and its agent with it.
	for node, a := range byNode {
		if !ours[node] && asked(a) {
			order = append(order, node)
		}
	}
	slices.Sort(order)
	return byNode, order, gaps
}
