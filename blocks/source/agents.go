package source

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sync/errgroup"

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

// agentPod is what of a pod matters for asking it.
type agentPod struct {
	Metadata struct {
		Name, Namespace   string
		Annotations       map[string]string
		CreationTimestamp time.Time
		DeletionTimestamp *time.Time
	}
	Spec struct {
		NodeName   string
		Containers []struct {
			Ports []struct {
				Name          string
				ContainerPort int
			}
		}
	}
	Status struct {
		Phase      string
		PodIP      string
		Conditions []struct{ Type, Status string }
	}
}

func (p *agentPod) source() string { return "pod " + p.Metadata.Namespace + "/" + p.Metadata.Name }

func (p *agentPod) ready() bool {
	for _, c := range p.Status.Conditions {
		if c.Type == "Ready" {
			return c.Status == "True"
		}
	}
	return false
}

// port is the container port named "agent", else the first.
func (p *agentPod) port() int {
	first := 0
	for _, c := range p.Spec.Containers {
		for _, port := range c.Ports {
			if port.Name == agentPortName {
				return port.ContainerPort
			}
			first = cmp.Or(first, port.ContainerPort)
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
		return blocks.JoinHostReadings(blocks.HostReading{Gaps: []blocks.HostGap{{Reason: agentListReason(err)}}}), nil
	}
	byNode, order, gaps := chooseAgents(s, pods, opts)
	readings, errs := make([]blocks.HostReading, len(order)), make([]error, len(order))
	bounded, stop := context.WithTimeout(ctx, 10*opts.Timeout)
	defer stop()
	group := errgroup.Group{}
	group.SetLimit(agentsAtOnce)
	done := make(chan struct{}, len(order))
	shown := make(chan struct{})
	go func() {
		defer close(shown)
		for n := range order {
			<-done
			if opts.Progress != nil {
				opts.Progress(n+1, len(order))
			}
		}
	}()
	for i, node := range order {
		group.Go(func() error {
			defer func() { done <- struct{}{} }()
			pod := byNode[node]
			body, err := k.askAgent(bounded, pod, opts)
			// Each is decoded at once, so that no more text is kept than is asked for.
			if errs[i] = err; err == nil {
				readings[i] = view(pod.source(), node, body)
			}
			return nil
		})
	}
	_ = group.Wait() // no function returns an error: each is a node's own
	<-shown
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

// agentPods lists the agents' pods.
func (k *Kubernetes) agentPods(ctx context.Context, opts AgentOptions) ([]agentPod, error) {
	path := "/api/v1/pods"
	if opts.Namespace != "" {
		path = "/api/v1/namespaces/" + url.PathEscape(opts.Namespace) + "/pods"
	}
	query := url.Values{"labelSelector": {opts.Selector}, "limit": {strconv.FormatInt(k.pageSize, 10)}}
	var out []agentPod
	for {
		var page struct {
			Metadata struct{ Continue string }
			Items    []agentPod
		}
		err := k.client.get(ctx, path, query, "application/json", func(a answer) error {
			page.Items, page.Metadata.Continue = nil, ""
			return json.Unmarshal(a.body, &page)
		})
		if err != nil {
			return nil, err
		}
		out = append(out, page.Items...)
		if page.Metadata.Continue == "" {
			return out, nil
		}
		query.Set("continue", page.Metadata.Continue)
	}
}

func agentListReason(err error) string {
	if codeOf(err) == http.StatusForbidden {
		return "the agents could not be found: forbidden: needs the right to list pods"
	}
	return "the agents could not be found: " + err.Error()
}

// chooseAgents picks an agent for each node, and notes the nodes that have none that
// could be asked.
func chooseAgents(s *blocks.Snapshot, pods []agentPod, opts AgentOptions) (byNode map[string]*agentPod, order []string, gaps []blocks.HostGap) {
	byNode = map[string]*agentPod{}
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
	better := func(a, b *agentPod) bool {
		for _, yes := range []func(*agentPod) bool{
			func(p *agentPod) bool { return p.Metadata.DeletionTimestamp == nil },
			func(p *agentPod) bool { return p.Status.Phase == "Running" },
			(*agentPod).ready,
		} {
			if yes(a) != yes(b) {
				return yes(a)
			}
		}
		return a.Metadata.CreationTimestamp.After(b.Metadata.CreationTimestamp)
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
		case p.Status.Phase != "Running":
			gap(n.Name, p.source(), fmt.Sprintf("its agent's pod is not running, but %s", cmp.Or(p.Status.Phase, "of no phase")))
		case p.port() == 0:
			gap(n.Name, p.source(), fmt.Sprintf("its agent's pod names no container port, %q or other", agentPortName))
		default:
			order = append(order, n.Name)
		}
	}
	// A machine whose Node object is gone may run on, and its agent with it.
	for node, p := range byNode {
		if !ours[node] && p.Status.Phase == "Running" && p.port() != 0 && !slices.Contains(order, node) {
			order = append(order, node)
		}
	}
	slices.Sort(order)
	return byNode, order, gaps
}
