package events_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	authv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/metrics/events"
)

// eventRight is one right in one namespace.
type eventRight struct{ namespace, group, resource, name, verb string }

func (r eventRight) String() string {
	return fmt.Sprintf("%s %s.%s in %s", r.verb, r.resource, r.group, r.namespace)
}

// denial is how the API server says that the right is missing, as logs quote it.
func (r eventRight) denial() string {
	return fmt.Sprintf(`cannot %s resource \"%s\" in API group \"%s\" in the namespace \"%s\"`, r.verb, r.resource, r.group, r.namespace)
}

// shippedRights are those of the component for Events among the examples: with the
// exporter in kube-system, and the Lease for an object.
func shippedRights(t *testing.T) (out []eventRight) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("..", "..", "examples", "kubernetes", "exporter-events", "role.yaml"))
	must(t, err)
	for document := range strings.SplitSeq(string(data), "\n---\n") {
		var role rbacv1.Role
		must(t, yaml.UnmarshalStrict([]byte(document), &role))
		for _, rule := range role.Rules {
			if len(rule.APIGroups) != 1 || len(rule.Resources) != 1 || len(rule.ResourceNames) > 1 {
				t.Fatalf("unexpected rule %+v", rule)
			}
			for _, verb := range rule.Verbs {
				out = append(out, eventRight{role.Namespace, rule.APIGroups[0], rule.Resources[0], strings.Join(rule.ResourceNames, ""), verb})
			}
		}
	}
	return out
}

// user returns the configuration of a new user with rights, once the API server
// heeds them.
func (w *eventWorld) user(name string, rights []eventRight) *rest.Config {
	w.Helper()
	rules := map[string][]rbacv1.PolicyRule{}
	for _, r := range rights {
		rule := rbacv1.PolicyRule{APIGroups: []string{r.group}, Resources: []string{r.resource}, Verbs: []string{r.verb}}
		if r.name != "" {
			rule.ResourceNames = []string{r.name}
		}
		rules[r.namespace] = append(rules[r.namespace], rule)
	}
	for namespace, rules := range rules {
		_, err := w.Kube.RbacV1().Roles(namespace).Create(w.Context(), &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: rules}, metav1.CreateOptions{})
		if !apierrors.IsAlreadyExists(err) {
			must(w.T, err)
		}
		_, err = w.Kube.RbacV1().RoleBindings(namespace).Create(w.Context(), &rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: name},
			Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: name}},
		}, metav1.CreateOptions{})
		if !apierrors.IsAlreadyExists(err) {
			must(w.T, err)
		}
	}
	cfg, err := w.UserConfig(name)
	must(w.T, err)
	client, err := kubernetes.NewForConfig(cfg)
	must(w.T, err)
	for _, r := range rights {
		w.until(name+" may "+r.String(), func() bool {
			review, err := client.AuthorizationV1().SelfSubjectAccessReviews().Create(w.Context(), &authv1.SelfSubjectAccessReview{
				Spec: authv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &authv1.ResourceAttributes{
					Namespace: r.namespace, Group: r.group, Resource: r.resource, Name: r.name, Verb: r.verb,
				}},
			}, metav1.CreateOptions{})
			must(w.T, err)
			return review.Status.Allowed
		})
	}
	return cfg
}

// TestEventsRights: the rights that ship suffice, and each of them is needed: without
// it, the log names it, once.
func TestEventsRights(t *testing.T) {
	w := newEventWorld(t)
	rights := shippedRights(t)
	options := replicaOptions{opts: events.Options{Refresh: 1500 * time.Millisecond}, quiet: true}
	report := reportOf(noBlock1, noFree)

	options.cfg = w.user("events-all", rights)
	r := w.replica(options)
	r.Tell(report)
	w.until("two Events are written, and written again", func() bool {
		all := w.events()
		return len(all) == 2 && all[0].Count > 1 && all[1].Count > 1
	})
	r.stop()
	if s := r.Stats(); s.Failed != 0 || strings.Contains(r.log.String(), "WARN") {
		t.Errorf("with all rights %d requests fail:\n%s", s.Failed, r.log)
	}

	for i, missing := range rights {
		t.Run(missing.String(), func(t *testing.T) {
			w := emptied(t, w.Cluster)
			options.cfg = w.user(fmt.Sprintf("events-without-%d", i), slices.DeleteFunc(slices.Clone(rights), func(r eventRight) bool { return r == missing }))
			w.denied(options, report, missing)
		})
	}
}

// denied fails the test unless the log says, once, that a right is missing.
func (w *eventWorld) denied(options replicaOptions, report *audit.Report, missing eventRight) {
	w.Helper()
	r := w.replica(options)
	r.Tell(report)
	w.until("the log names "+missing.denial(), func() bool { return strings.Contains(r.log.String(), missing.denial()) })
	time.Sleep(300 * time.Millisecond)
	r.stop()
	if n := r.log.count(missing.denial()); n != 1 {
		w.Errorf("the missing right is named %d times:\n%s", n, r.log)
	}
}

// TestEventsObjectRight: an object of one's own choice takes the right to get it.
// Without, Events are written all the same, and the log tells what they lack.
func TestEventsObjectRight(t *testing.T) {
	w := newEventWorld(t)
	w.deployment("calico-kube-controllers")
	object, err := events.ParseObject("deployments.apps/calico-kube-controllers")
	must(t, err)
	options := replicaOptions{opts: events.Options{Object: object}, quiet: true}
	get := eventRight{"kube-system", "apps", "deployments", "calico-kube-controllers", "get"}
	options.cfg = w.user("events-no-object", shippedRights(t))
	w.denied(options, reportOf(noFree), get)
	w.expectReasons("PoolNoFreeBlocks")
	if lines := w.described("deployment", "kube-system", "calico-kube-controllers"); len(lines) > 0 {
		t.Errorf("without the right to read the object's UID kubectl describe shows %v", lines)
	}
	options.cfg = w.user("events-object", append(shippedRights(t), get))
	w.replica(options).Tell(reportOf(noFree))
	w.until("kubectl describe shows it", func() bool {
		return w.shows("deployment", "kube-system", "calico-kube-controllers", "PoolNoFreeBlocks")
	})
}

// TestEventsLeaseLost: a writer whose rights to the Lease are taken away ceases to
// write, says so, and goes on once it has them again.
func TestEventsLeaseLost(t *testing.T) {
	w := newEventWorld(t)
	r := w.replica(replicaOptions{cfg: w.user("events-lease-lost", shippedRights(t)), quiet: true})
	r.Tell(reportOf(noBlock1))
	w.expect(toldNoBlock)
	must(t, w.Kube.RbacV1().RoleBindings("kube-system").Delete(t.Context(), "events-lease-lost", metav1.DeleteOptions{}))
	w.until("it writes no more", func() bool { return !r.Stats().Leading })
	r.Tell(reportOf(noBlock1, blackhole))
	w.expect(toldNoBlock)
	w.user("events-lease-lost", shippedRights(t))
	w.expect(toldNoBlock, toldBlackhole)
	if n := r.log.count(`cannot update resource \"leases\"`); n != 1 {
		t.Errorf("the loss is said %d times:\n%s", n, r.log)
	}
	if s := r.Stats(); s.Written != 2 || !s.Leading {
		t.Errorf("got %+v", s)
	}
}
