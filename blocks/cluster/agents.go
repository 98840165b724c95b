package cluster

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"

	"github.com/calico-audit/calico-audit/blocks"
)

// AgentOptions say how the agents of a cluster are found and asked.
type AgentOptions struct {
	// Selector is the label selector of the agents' pods.
	Selector string
	// Namespace is theirs; empty means any.
	Namespace string
	// Timeout is how long one agent may take; zero means [DefaultAgentTimeout]. All
	// together may take ten times as long.
	Timeout time.Duration
	// Scheme is "http" or "https"; empty means what the pod's annotation
	// [AgentSchemeAnnotation] says, else http.
	Scheme string
	// Progress is called after each answer, by one goroutine at a time.
	Progress func(done, total int)
}

const (
	// DefaultAgentSelector finds the agents of examples/kubernetes/agent.
	DefaultAgentSelector = "app.kubernetes.io/name=calico-audit-agent"
	// DefaultAgentTimeout is how long one agent may take.
	DefaultAgentTimeout = 10 * time.Second
	// AgentSchemeAnnotation on an agent's pod says "https" where it speaks TLS.
	AgentSchemeAnnotation = "calico-audit/agent-scheme"
	// AgentPath is where an agent serves its host view.
	AgentPath = "/hostview"

	agentPortName = "agent"
	// agentsAtOnce limits how many agents are asked at once, and maxAgentView how
	// much one may answer: together they limit the memory that it takes.
	agentsAtOnce = 32
	maxAgentView = 16 << 20
)

func podSource(p *corev1.Pod) string { return "pod " + p.Namespace + "/" + p.Name }

func podReady(p *corev1.Pod) bool {
	return slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
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

// AgentViews asks the agents of the cluster's nodes for their host views, through
// the API server, which takes the right to get pods/proxy, and gives each answer to
// view, by several goroutines at once. The API server does not make sure who answers,
// so that their views are not authenticated. A node whose agent cannot be asked, or
// that has none, is a gap. Only the end of ctx is an error.
func (k *Kubernetes) AgentViews(ctx context.Context, s *blocks.Snapshot, view func(source, node string, text []byte) blocks.HostReading, opts AgentOptions) (blocks.HostReading, error) {
	opts.Timeout = cmp.Or(opts.Timeout, DefaultAgentTimeout)
	pods, err := k.agentPods(ctx, opts)
	if ctx.Err() != nil {
		return blocks.HostReading{}, ctx.Err()
	}
	if err != nil {
		reason := err.Error()
		if codeOf(err) == http.StatusForbidden {
			reason = "forbidden: needs the right to list pods"
		}
		return blocks.JoinHostReadings(blocks.HostReading{Gaps: []blocks.HostGap{{Reason: "the agents could not be found: " + reason}}}), nil
	}
	byNode, order, gaps := chooseAgents(s, pods, opts)
	readings, errs := make([]blocks.HostReading, len(order)), make([]error, len(order))
	bounded, stop := context.WithTimeout(ctx, 10*opts.Timeout)
	defer stop()
	var group errgroup.Group
	group.SetLimit(agentsAtOnce)
	var shown sync.Mutex
	done := 0
	for i, node := range order {
		group.Go(func() error {
			pod := byNode[node]
			body, err := k.askAgent(bounded, pod, opts)
			// Each is decoded at once, so that no more text is kept than is asked for.
			if errs[i] = err; err == nil {
				readings[i] = view(podSource(pod), node, body)
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
			gaps = append(gaps, blocks.HostGap{Node: node, Source: podSource(byNode[node]), Reason: agentReason(errs[i], bounded, opts.Timeout)})
		}
	}
	return blocks.JoinHostReadings(append(readings, blocks.HostReading{Gaps: gaps})...), nil
}

func (k *Kubernetes) agentPods(ctx context.Context, opts AgentOptions) ([]corev1.Pod, error) {
	path := "/api/v1/pods"
	if opts.Namespace != "" {
		path = "/api/v1/namespaces/" + url.PathEscape(opts.Namespace) + "/pods"
	}
	query := url.Values{"labelSelector": {opts.Selector}, "limit": {strconv.FormatInt(k.pageSize, 10)}}
	var out []corev1.Pod
	for {
		var page corev1.PodList
		err := k.client.get(ctx, path, query, "application/json", func(body io.Reader) error {
			page = corev1.PodList{}
			return json.NewDecoder(body).Decode(&page)
		})
		if err != nil {
			return nil, err
		}
		out = append(out, page.Items...)
		if page.Continue == "" {
			return out, nil
		}
		query.Set("continue", page.Continue)
	}
}

// chooseAgents picks an agent for each node, and notes the nodes that have none that
// could be asked.
func chooseAgents(s *blocks.Snapshot, pods []corev1.Pod, opts AgentOptions) (byNode map[string]*corev1.Pod, order []string, gaps []blocks.HostGap) {
	byNode = map[string]*corev1.Pod{}
	gap := func(node, source, reason string) {
		gaps = append(gaps, blocks.HostGap{Node: node, Source: source, Reason: reason})
	}
	where := "in any namespace"
	if opts.Namespace != "" {
		where = "in namespace " + opts.Namespace
	}
	if len(pods) == 0 {
		gap("", "", fmt.Sprintf("no agent was found: no pod %s has the labels %s", where, opts.Selector))
		return byNode, nil, gaps
	}
	better := func(a, b *corev1.Pod) bool {
		for _, yes := range []func(*corev1.Pod) bool{
			func(p *corev1.Pod) bool { return p.DeletionTimestamp == nil },
			func(p *corev1.Pod) bool { return p.Status.Phase == corev1.PodRunning },
			podReady,
		} {
			if yes(a) != yes(b) {
				return yes(a)
			}
		}
		return a.CreationTimestamp.After(b.CreationTimestamp.Time)
	}
	for i := range pods {
		p := &pods[i]
		if node := p.Spec.NodeName; node != "" && (byNode[node] == nil || better(p, byNode[node])) {
			byNode[node] = p
		}
	}
	ours := map[string]bool{}
	if _, missing := s.Missing(blocks.Nodes); !missing {
		for _, unread := range s.Unreadable(blocks.Nodes) {
			ours[unread.Name] = true
		}
	}
	for i := range s.Nodes {
		n := &s.Nodes[i]
		p := byNode[n.Name]
		ours[n.Name] = true
		switch {
		case p == nil && n.Windows:
			gap(n.Name, "", "no agent runs on it: the agent reads Linux kernels, and the node runs Windows")
		case p == nil:
			gap(n.Name, "", fmt.Sprintf("no agent runs on it: no pod %s with the labels %s is bound to it", where, opts.Selector))
		case p.Status.Phase != corev1.PodRunning:
			gap(n.Name, podSource(p), fmt.Sprintf("its agent's pod is not running, but %s", cmp.Or(p.Status.Phase, "of no phase")))
		case agentPort(p) == 0:
			gap(n.Name, podSource(p), fmt.Sprintf("its agent's pod names no container port, %q or other", agentPortName))
		default:
			order = append(order, n.Name)
		}
	}
	// A machine whose Node object is gone may run on, and its agent with it.
	for node, p := range byNode {
		if !ours[node] && p.Status.Phase == corev1.PodRunning && agentPort(p) != 0 && !slices.Contains(order, node) {
			order = append(order, node)
		}
	}
	slices.Sort(order)
	return byNode, order, gaps
}
