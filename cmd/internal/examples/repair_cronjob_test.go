package examples_test

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/cmd/internal/cli/clitest"
	"github.com/calico-audit/calico-audit/cmd/internal/exit"
	"github.com/calico-audit/calico-audit/internal/testcluster/seeding"
)

// cronJob reads a manifest of the example.
func cronJob(t *testing.T, name string, into any) {
	t.Helper()
	path := filepath.Join("..", "..", "..", "examples", "kubernetes", "repair-cronjob", name)
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.UnmarshalStrict(raw, into); err != nil {
		t.Fatalf("reading %s: %v", path, err)
	}
}

// TestCronJob: the example's CronJob runs with its own arguments and role, and releases the
// empty blocks. This includes the block of a deleted node in the same night, although it
// needs two observations.
func TestCronJob(t *testing.T) {
	var job batchv1.CronJob
	var role rbacv1.ClusterRole
	cronJob(t, "cronjob.yaml", &job)
	cronJob(t, "clusterrole.yaml", &role)
	checkCronJob(t, &job)
	args := job.Spec.JobTemplate.Spec.Template.Spec.Containers[0].Args

	c := clitest.Play(t, seeding.StoryDrained)
	t.Chdir(t.TempDir()) // like workingDir
	// as returns a kubeconfig of a user with these rights, once the API server applies
	// them.
	as := func(user string, rules []rbacv1.PolicyRule) string {
		t.Helper()
		if err := c.Allow(t.Context(), user, rules...); err != nil {
			t.Fatal(err)
		}
		path, err := c.UserKubeconfig(user)
		if err != nil {
			t.Fatal(err)
		}
		clitest.Await(t, user+" has rights", func() bool {
			review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
				User: user, ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: "list", Resource: "nodes"},
			}}
			review, err := c.Kube.AuthorizationV1().SubjectAccessReviews().Create(t.Context(), review, metav1.CreateOptions{})
			if err != nil {
				t.Fatal(err)
			}
			return review.Status.Allowed
		})
		return path
	}
	run := func(kubeconfig string) clitest.Outcome {
		t.Helper()
		return clitest.Run(t, append(slices.Clone(args), "--kubeconfig", kubeconfig)...)
	}
	for _, verb := range []string{"patch", "delete"} {
		got := run(as("no-"+verb, withoutVerb(role.Rules, "ipamblocks", verb)))
		if got.Code != exit.CodeUnfinished || !strings.Contains(got.Err, "the right to "+verb+" ipamblocks.crd.projectcalico.org (for release-block)") {
			t.Errorf("without the right to %s blocks it ends with %d: %s", verb, got.Code, got.Err)
		}
		if clitest.EmptyBlocks(t, c) != 2 {
			t.Fatal("something was written without the right to carry the plan out")
		}
	}
	if err := c.Kube.CoreV1().Nodes().Delete(t.Context(), "old-2", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	args = append(slices.Clone(args), "--grace=2s")
	kubeconfig := as("repairer", role.Rules)
	got := run(kubeconfig)
	if !strings.Contains(got.Err, "needs a second observation") {
		t.Errorf("no step has to wait, so that this shows nothing:\n%s", got.Err)
	}
	if got.Code != exit.CodeOK || clitest.EmptyBlocks(t, c) != 0 || !strings.Contains(got.Stdout, "Of 2 steps: 2 done.") {
		t.Errorf("it ends with %d, %d empty blocks\n%s%s", got.Code, clitest.EmptyBlocks(t, c), got.Stdout, got.Err)
	}
	if journals, err := filepath.Glob("calico-audit-journal-*.jsonl"); err != nil || len(journals) != 1 {
		t.Errorf("journals %v, %v", journals, err)
	}
	if got := run(kubeconfig); got.Code != exit.CodeOK || !strings.Contains(got.Stdout, "No steps: nothing to do.") {
		t.Errorf("the next night it ends with %d\n%s%s", got.Code, got.Stdout, got.Err)
	}
	for _, kind := range []string{"--leaked-ips", "--leaked-handles", "--strict-affinity=true"} {
		got := clitest.Run(t, "repair", kind, "--apply", "--yes", "--kubeconfig", kubeconfig)
		if kind == "--strict-affinity=true" && got.Code != exit.CodeUnfinished {
			t.Errorf("the role is good for %s, too: exit code %d\n%s", kind, got.Code, got.Stdout)
		}
	}
}

// checkCronJob checks the properties that make the manifest safe to run unattended.
func checkCronJob(t *testing.T, job *batchv1.CronJob) {
	t.Helper()
	spec := job.Spec.JobTemplate.Spec
	pod := spec.Template.Spec
	container := pod.Containers[0]
	if job.Spec.ConcurrencyPolicy != batchv1.ForbidConcurrent || spec.BackoffLimit == nil || *spec.BackoffLimit != 0 || pod.RestartPolicy != corev1.RestartPolicyNever {
		t.Error("two runs at once, or runs that are repeated, are possible")
	}
	if end := spec.ActiveDeadlineSeconds; end == nil || time.Duration(*end)*time.Second < state.DefaultGrace+20*time.Minute {
		t.Error("a run has no end, or too early a one to wait out the grace period and do its work")
	}
	if end := pod.TerminationGracePeriodSeconds; end == nil || time.Duration(*end)*time.Second <= blocks.WriteTimeout {
		t.Error("a pod that is terminated has no time to finish its object")
	}
	if group := pod.SecurityContext.FSGroup; group == nil || *group != *pod.SecurityContext.RunAsGroup {
		t.Error("the journal's volume may not be written to")
	}
	if pod.NodeSelector[corev1.LabelOSStable] != "linux" {
		t.Error("it may run on a node that has not Linux")
	}
	if s := container.SecurityContext; s == nil || !*s.ReadOnlyRootFilesystem || *s.AllowPrivilegeEscalation || !*pod.SecurityContext.RunAsNonRoot {
		t.Error("the container may write to its root file system, or run as root")
	}
	var claim corev1.PersistentVolumeClaim
	cronJob(t, "persistentvolumeclaim.yaml", &claim)
	kept := slices.ContainsFunc(pod.Volumes, func(v corev1.Volume) bool {
		return v.Name == container.VolumeMounts[0].Name && v.PersistentVolumeClaim != nil &&
			v.PersistentVolumeClaim.ClaimName == claim.Name && job.Namespace == claim.Namespace
	})
	if container.WorkingDir != container.VolumeMounts[0].MountPath || !kept {
		t.Errorf("the journal goes to %s, and is lost with the pod", container.WorkingDir)
	}
	bounded := slices.ContainsFunc(container.Args, func(a string) bool {
		most, err := strconv.Atoi(strings.TrimPrefix(a, "--max-steps="))
		return err == nil && most > 0 && most <= 50
	})
	if !slices.Contains(container.Args, "--yes") || !slices.Contains(container.Args, "--wait") || !bounded {
		t.Errorf("the arguments are %v", container.Args)
	}
	var binding rbacv1.ClusterRoleBinding
	cronJob(t, "clusterrolebinding.yaml", &binding)
	if s := binding.Subjects[0]; s.Name != pod.ServiceAccountName || s.Namespace != job.Namespace {
		t.Errorf("the role is bound to %s/%s, and the job runs as %s/%s", s.Namespace, s.Name, job.Namespace, pod.ServiceAccountName)
	}
}

// withoutVerb returns the rules without one verb on one resource.
func withoutVerb(rules []rbacv1.PolicyRule, resource, verb string) []rbacv1.PolicyRule {
	var out []rbacv1.PolicyRule
	for _, r := range rules {
		r = *r.DeepCopy()
		if slices.Contains(r.Resources, resource) {
			r.Verbs = slices.DeleteFunc(r.Verbs, func(v string) bool { return v == verb })
		}
		out = append(out, r)
	}
	return out
}
