package datastore

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"
	coordinationv1 "k8s.io/api/coordination/v1"

	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/blocks/decode"
	"github.com/calico-audit/calico-audit/repair"
)

// MissingRight is a right that the writer lacks.
type MissingRight struct {
	// Verb, Resource and Group are those of RBAC.
	Verb, Resource, Group string
	// Kinds are the kinds of step that require it.
	Kinds []repair.Kind
	// Reason is the API server's reason; often empty.
	Reason string
}

// String returns the right in one line.
func (m MissingRight) String() string {
	var kinds []string
	for _, k := range m.Kinds {
		kinds = append(kinds, string(k))
	}
	what := strings.TrimSuffix(m.Resource+"."+m.Group, ".")
	if m.Resource == string(repair.Leases) {
		what += " in " + repair.LeaseNamespace
	}
	text := fmt.Sprintf("the right to %s %s (for %s)", m.Verb, what, strings.Join(kinds, ", "))
	if m.Reason != "" {
		text += ": " + m.Reason
	}
	return text
}

// MissingRights asks the API server which rights are missing for steps of some kinds, or
// for undoing them. An error means that this is unknown.
func (k *Kubernetes) MissingRights(ctx context.Context, kinds []*repair.StepKind, undo bool) ([]MissingRight, error) {
	var out []MissingRight
	for _, need := range k.needed(kinds, undo) {
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

// needed returns the rights of some kinds of step, each once, sorted by resource.
func (k *Kubernetes) needed(kinds []*repair.StepKind, undo bool) []MissingRight {
	needs := map[repair.Kind][]repair.Right{}
	for _, kind := range kinds {
		if needs[kind.Kind] = kind.Rights; undo {
			needs[kind.Kind] = kind.UndoRights
		}
	}
	sorted := slices.Sorted(maps.Keys(needs))
	var resources []blocks.Resource
	for _, kind := range sorted {
		for _, n := range needs[kind] {
			if !slices.Contains(resources, n.Resource) {
				resources = append(resources, n.Resource)
			}
		}
	}
	var out []MissingRight
	for _, r := range resources {
		for _, verb := range []string{"get", "list", "create", "update", "patch", "delete"} {
			need := MissingRight{Verb: verb, Resource: string(r)}
			if kind := decode.KindOf(r); kind != nil {
				need.Resource, need.Group = kind.RBAC(k.group)
			} else if r == repair.Leases {
				need.Group = coordinationv1.GroupName
			}
			for _, kind := range sorted {
				if slices.ContainsFunc(needs[kind], func(n repair.Right) bool { return n.Resource == r && slices.Contains(n.Verbs, verb) }) {
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

// allowed checks a right with a SelfSubjectAccessReview, which every authenticated user
// may create.
func (k *Kubernetes) allowed(ctx context.Context, need MissingRight) (ok bool, reason string, err error) {
	resource, sub, _ := strings.Cut(need.Resource, "/")
	asked := &authorizationv1.ResourceAttributes{Group: need.Group, Resource: resource, Subresource: sub, Verb: need.Verb}
	if need.Resource == string(repair.Leases) {
		asked.Namespace = repair.LeaseNamespace
		if need.Verb != "create" { // a create names no object
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
		return false, "", errors.New("the answer is not a SelfSubjectAccessReview")
	}
	return review.Status.Allowed, cmp.Or(review.Status.Reason, review.Status.EvaluationError), nil
}
