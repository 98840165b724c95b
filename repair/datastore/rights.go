package datastore

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"

	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/repair"
)

// A Right is what RBAC must allow: verbs on a resource of Calico's API group, or on
// Kubernetes' own.
type Right struct {
	Resource blocks.Resource
	Verbs    []string
}

func may(r blocks.Resource, verbs string) Right { return Right{r, strings.Fields(verbs)} }

// rights are what each kind of step needs, beyond what an audit needs for reading.
// The ClusterRole in examples/kubernetes/rbac-repair is the sum of them and of
// undoRights; a test holds it to that. A block is created where it has to be put back.
var rights = map[repair.Kind][]Right{
	repair.ReleaseBlock:      {may(blocks.Blocks, "get create patch delete"), may(blocks.Affinities, "get create patch delete")},
	repair.DisownBlock:       {may(blocks.Blocks, "get patch"), may(blocks.Affinities, "get create patch delete")},
	repair.DeleteAffinity:    {may(blocks.Blocks, "get"), may(blocks.Affinities, "get create patch delete")},
	repair.RestoreAffinity:   {may(blocks.Blocks, "get"), may(blocks.Affinities, "get list create patch delete")},
	repair.RecordIP:          {may(blocks.Blocks, "get create patch"), may(blocks.Affinities, "get list create patch delete"), may(blocks.Handles, "get create patch delete")},
	repair.CreateHandle:      {may(blocks.Blocks, "get"), may(blocks.Handles, "get create patch delete")},
	repair.ReleaseIP:         {may(blocks.Blocks, "get patch delete"), may(blocks.Handles, "get patch delete")},
	repair.DeleteHandle:      {may(blocks.Blocks, "get"), may(blocks.Handles, "get patch delete")},
	repair.FixHandleCount:    {may(blocks.Handles, "get patch")},
	repair.ClaimBlock:        {may(blocks.Blocks, "get create"), may(blocks.Affinities, "get list create patch delete")},
	repair.ReserveBlock:      {may(blocks.Reservations, "get create delete"), lease},
	repair.UnreserveBlock:    {may(blocks.Reservations, "get delete"), lease},
	repair.CordonNode:        {may(blocks.Nodes, "get patch"), lease},
	repair.UncordonNode:      {may(blocks.Nodes, "get patch"), lease},
	repair.EvictPod:          {may(blocks.Pods, "get"), may(evictions, "create"), may(blocks.Budgets, "list"), lease},
	repair.FinishDelete:      {may(blocks.Blocks, "get delete"), may(blocks.Affinities, "get create patch delete"), may(blocks.Handles, "get delete")},
	repair.SetStrictAffinity: {may(blocks.IPAMConfigs, "get create patch")},

	repair.ReleaseWhereabouts:           {may(blocks.WhereaboutsPools, "get patch"), may(blocks.WhereaboutsReservations, "get create delete")},
	repair.DeleteWhereaboutsReservation: {may(blocks.WhereaboutsPools, "get"), may(blocks.WhereaboutsReservations, "get create delete")},
	repair.RestoreWhereabouts:           {may(blocks.WhereaboutsPools, "get patch"), may(blocks.WhereaboutsReservations, "get")},
}

// undoRights are what taking each kind of step back needs, or finishing it where it was
// left half-done: what was marked is deleted, and an affinity that gets its state back
// while its block is released is deleted, too (PutAffinityState).
var undoRights = map[repair.Kind][]Right{
	repair.ReleaseBlock:      {may(blocks.Blocks, "get delete"), may(blocks.Affinities, "get create patch delete")},
	repair.DisownBlock:       {may(blocks.Blocks, "get"), may(blocks.Affinities, "get create patch delete")},
	repair.DeleteAffinity:    {may(blocks.Blocks, "get"), may(blocks.Affinities, "get create patch delete")},
	repair.RestoreAffinity:   {may(blocks.Blocks, "get"), may(blocks.Affinities, "get create patch delete")},
	repair.FinishDelete:      {may(blocks.Blocks, "get"), may(blocks.Affinities, "get create patch delete")},
	repair.ReleaseIP:         {may(blocks.Blocks, "get patch delete"), may(blocks.Handles, "get create patch delete")},
	repair.RecordIP:          {may(blocks.Blocks, "get create patch"), may(blocks.Affinities, "get list create patch delete"), may(blocks.Handles, "get create patch delete")},
	repair.DeleteHandle:      {may(blocks.Handles, "get create delete")},
	repair.SetStrictAffinity: {may(blocks.IPAMConfigs, "get patch")},

	repair.ReleaseWhereabouts:           {may(blocks.WhereaboutsPools, "get patch"), may(blocks.WhereaboutsReservations, "get create delete")},
	repair.DeleteWhereaboutsReservation: {may(blocks.WhereaboutsReservations, "get create")},

	repair.ReserveBlock:   {may(blocks.Reservations, "get delete"), lease},
	repair.UnreserveBlock: {may(blocks.Reservations, "get delete"), lease},
	repair.CordonNode:     {may(blocks.Nodes, "get patch"), lease},
	repair.UncordonNode:   {may(blocks.Nodes, "get patch"), lease},
}

// evictions is the subresource by which pods are evicted, leases are what one run at a
// time has that moves them.
const (
	evictions blocks.Resource = "pods/eviction"
	leases    blocks.Resource = "leases"
)

// lease is what [repair.Workloads.AcquireLease] needs, of the one Lease in its namespace.
var lease = may(leases, "get create update delete")

// coreGroups are the API groups of what is Kubernetes' own.
var coreGroups = map[blocks.Resource]string{blocks.Nodes: "", blocks.Pods: "", evictions: "", blocks.Budgets: "policy", leases: "coordination.k8s.io",
	blocks.WhereaboutsPools: "whereabouts.cni.cncf.io", blocks.WhereaboutsReservations: "whereabouts.cni.cncf.io"}

// MissingRight is a right that whoever writes does not have.
type MissingRight struct {
	// Verb, Resource and Group are as RBAC has them.
	Verb, Resource, Group string
	// Kinds are the kinds of step that need it.
	Kinds []repair.Kind
	// Reason is what the API server says about it; often empty.
	Reason string
}

// String says the right in one line.
func (m MissingRight) String() string {
	var kinds []string
	for _, k := range m.Kinds {
		kinds = append(kinds, string(k))
	}
	what := strings.TrimSuffix(m.Resource+"."+m.Group, ".")
	if m.Resource == string(leases) {
		what += " in " + repair.LeaseNamespace
	}
	text := fmt.Sprintf("the right to %s %s (for %s)", m.Verb, what, strings.Join(kinds, ", "))
	if m.Reason != "" {
		text += ": " + m.Reason
	}
	return text
}

// Rights asks the API server which of the rights that steps of the given kinds need
// are missing. An error means that it is not known.
func (k *Kubernetes) Rights(ctx context.Context, kinds []repair.Kind) ([]MissingRight, error) {
	return k.missing(ctx, kinds, rights)
}

// UndoRights is like Rights, for taking such steps back.
func (k *Kubernetes) UndoRights(ctx context.Context, kinds []repair.Kind) ([]MissingRight, error) {
	return k.missing(ctx, kinds, undoRights)
}

func (k *Kubernetes) missing(ctx context.Context, kinds []repair.Kind, table map[repair.Kind][]Right) ([]MissingRight, error) {
	var out []MissingRight
	for _, need := range k.needed(kinds, table) {
		allowed, reason, err := k.allowed(ctx, need)
		if err != nil {
			return nil, fmt.Errorf("asking for the right to %s %s.%s: %w", need.Verb, need.Resource, need.Group, err)
		}
		if !allowed {
			need.Reason = reason
			out = append(out, need)
		}
	}
	return out, nil
}

// needed lists the single rights that kinds of step need, each once, in the order
// of the resources.
func (k *Kubernetes) needed(kinds []repair.Kind, table map[repair.Kind][]Right) []MissingRight {
	group, _, _ := strings.Cut(k.group, "/")
	kinds = slices.Compact(slices.Sorted(slices.Values(kinds)))
	var out []MissingRight
	for _, r := range []blocks.Resource{
		blocks.Blocks, blocks.Affinities, blocks.Handles, blocks.IPAMConfigs, blocks.Reservations, blocks.Nodes, blocks.Pods, evictions, blocks.Budgets, leases,
		blocks.WhereaboutsPools, blocks.WhereaboutsReservations,
	} {
		for _, verb := range []string{"get", "list", "create", "update", "patch", "delete"} {
			need := MissingRight{Verb: verb, Resource: k.plural(r), Group: group}
			if g, core := coreGroups[r]; core {
				need.Group = g
			}
			for _, kind := range kinds {
				if slices.ContainsFunc(table[kind], func(n Right) bool { return n.Resource == r && slices.Contains(n.Verbs, verb) }) {
					need.Kinds = append(need.Kinds, kind)
				}
			}
			if len(need.Kinds) > 0 {
				out = append(out, need)
			}
		}
	}
	return out
}

// allowed asks for one right, by a SelfSubjectAccessReview, which every
// authenticated user may create.
func (k *Kubernetes) allowed(ctx context.Context, need MissingRight) (ok bool, reason string, err error) {
	resource, sub, _ := strings.Cut(need.Resource, "/")
	asked := &authorizationv1.ResourceAttributes{Group: need.Group, Resource: resource, Subresource: sub, Verb: need.Verb}
	if need.Resource == string(leases) {
		asked.Namespace = repair.LeaseNamespace
		if need.Verb != "create" { // which names nothing
			asked.Name = repair.LeaseName
		}
	}
	review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: asked}}
	review.SetGroupVersionKind(authorizationv1.SchemeGroupVersion.WithKind("SelfSubjectAccessReview"))
	body, err := json.Marshal(review)
	if err != nil {
		return false, "", err
	}
	answer, err := k.client.read(ctx, request{
		method: http.MethodPost, path: "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", contentType: "application/json", body: body,
	})
	if err != nil {
		return false, "", err
	}
	review.Kind = ""
	if err := json.Unmarshal(answer, review); err != nil || review.Kind != "SelfSubjectAccessReview" {
		return false, "", errors.New("the answer is no SelfSubjectAccessReview")
	}
	return review.Status.Allowed, cmp.Or(review.Status.Reason, review.Status.EvaluationError), nil
}
