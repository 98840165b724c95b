package examples_test

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"

	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/blocks/cluster/agents"
	"github.com/calico-audit/calico-audit/cmd/internal/cli"
	"github.com/calico-audit/calico-audit/internal/testcluster"
	"github.com/calico-audit/calico-audit/internal/testenv"
)

// agentManifests builds examples/kubernetes/agent like "kubectl apply -k", with some of its
// patches.
func agentManifests(t *testing.T, patches ...string) []*unstructured.Unstructured {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "agent")
	if err := os.CopyFS(dir, os.DirFS(filepath.Join("..", "..", "..", "examples", "kubernetes", "agent"))); err != nil {
		t.Fatal(err)
	}
	if len(patches) > 0 {
		f, err := os.OpenFile(filepath.Join(dir, "kustomization.yaml"), os.O_APPEND|os.O_WRONLY, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		fmt.Fprintf(f, "patches:\n- path: %s\n", strings.Join(patches, "\n- path: "))
	}
	return kustomize(t, dir)
}

// kustomize builds a kustomization like "kubectl apply -k".
func kustomize(t *testing.T, dir string) []*unstructured.Unstructured {
	t.Helper()
	built, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), dir)
	if err != nil {
		t.Fatal(err)
	}
	var out []*unstructured.Unstructured
	for _, r := range built.Resources() {
		m, err := r.Map()
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, &unstructured.Unstructured{Object: m})
	}
	return out
}

// agentDaemonSet decodes the DaemonSet of the manifests, strictly.
func agentDaemonSet(t *testing.T, patches ...string) *appsv1.DaemonSet {
	t.Helper()
	var ds *appsv1.DaemonSet
	for _, o := range agentManifests(t, patches...) {
		text, err := json.Marshal(o.Object)
		if err != nil {
			t.Fatal(err)
		}
		var into any
		switch kind := o.GetKind(); kind {
		case "DaemonSet":
			ds = &appsv1.DaemonSet{}
			into = ds
		case "ServiceAccount":
			into = &corev1.ServiceAccount{}
		default:
			t.Fatalf("there is a %s", kind)
		}
		if err := yaml.UnmarshalStrict(text, into); err != nil {
			t.Fatalf("%s: %v", o.GetKind(), err)
		}
	}
	if ds == nil || len(ds.Spec.Template.Spec.Containers) != 1 {
		t.Fatal("there is no DaemonSet of one container")
	}
	return ds
}

var allAgentPatches = []string{"patch-enter-namespaces.yaml", "patch-selinux.yaml"}

// TestAgentManifests: the agent's DaemonSet has the documented properties, and fits the
// program, "report --agents" and a real API server.
func TestAgentManifests(t *testing.T) {
	for _, patches := range [][]string{nil, allAgentPatches} {
		ds := agentDaemonSet(t, patches...)
		pod := ds.Spec.Template.Spec
		c := pod.Containers[0]

		if !pod.HostNetwork || !pod.HostPID || pod.AutomountServiceAccountToken == nil || *pod.AutomountServiceAccountToken {
			t.Errorf("host network %v, host processes %v, token %v", pod.HostNetwork, pod.HostPID, pod.AutomountServiceAccountToken)
		}
		want := []corev1.Capability{"SYS_PTRACE"}
		if patches != nil {
			want = append(want, "SYS_ADMIN")
		}
		s := c.SecurityContext
		if !slices.Equal(s.Capabilities.Add, want) || !slices.Equal(s.Capabilities.Drop, []corev1.Capability{"ALL"}) ||
			*s.Privileged || *s.AllowPrivilegeEscalation || !*s.ReadOnlyRootFilesystem {
			t.Errorf("rights of the container: %+v", s)
		}
		for _, v := range pod.Volumes {
			if v.HostPath == nil {
				continue
			}
			for _, m := range c.VolumeMounts {
				if m.Name == v.Name && (!m.ReadOnly || m.MountPropagation == nil || *m.MountPropagation != corev1.MountPropagationHostToContainer) {
					t.Errorf("%s may be written to, or lacks what is mounted there later: %+v", v.HostPath.Path, m)
				}
			}
		}
		if !slices.Contains(pod.Tolerations, corev1.Toleration{Operator: corev1.TolerationOpExists}) {
			t.Errorf("it does not run on every node: %+v", pod.Tolerations)
		}
		if c.Resources.Requests.Memory().IsZero() || c.Resources.Limits.Memory().IsZero() {
			t.Errorf("resources: %+v", c.Resources)
		}
		checkFlags(t, "agent", c.Args)

		// The selector and port that "report --agents" uses.
		key, value, _ := strings.Cut(agents.DefaultSelector, "=")
		if got := ds.Spec.Template.Labels[key]; got != value || ds.Spec.Selector.MatchLabels[key] != value {
			t.Errorf("label %s is %q, want %q", key, got, value)
		}
		if len(c.Ports) != 1 || c.Ports[0].Name != "agent" {
			t.Errorf("ports: %+v", c.Ports)
		}
		listen := flagDefault(t, "agent", "listen")
		if want := fmt.Sprintf("[:%d]", c.Ports[0].ContainerPort); listen != want {
			t.Errorf("it listens on %s by default, and the port is %s", listen, want)
		}
		checkAgentProbes(t, ds, "")
	}
}

// checkAgentProbes: "report --agents" and the kubelet use the agent's scheme; an empty
// scheme is plain HTTP.
func checkAgentProbes(t *testing.T, ds *appsv1.DaemonSet, scheme string) {
	t.Helper()
	if got := ds.Spec.Template.Annotations[agents.SchemeAnnotation]; got != scheme {
		t.Errorf("the agents are asked by %q, want %q", got, scheme)
	}
	c := ds.Spec.Template.Spec.Containers[0]
	for _, p := range []*corev1.Probe{c.LivenessProbe, c.ReadinessProbe} {
		if p.HTTPGet.Port.String() != "agent" || strings.ToLower(string(p.HTTPGet.Scheme)) != scheme {
			t.Errorf("the agents speak %q, and a probe is %+v", scheme, p.HTTPGet)
		}
	}
}

// flagDefault returns the default of a command's flag.
func flagDefault(t *testing.T, command, name string) string {
	t.Helper()
	root := cli.NewRoot("calico-audit", genericiooptions.IOStreams{Out: io.Discard, ErrOut: io.Discard})
	c, _, err := root.Find([]string{command})
	if err != nil {
		t.Fatal(err)
	}
	f := c.Flags().Lookup(name)
	if f == nil {
		t.Fatalf("%s has no flag --%s", command, name)
	}
	return f.DefValue
}

// checkFlags parses a container's arguments like the program does.
func checkFlags(t *testing.T, command string, args []string) {
	t.Helper()
	root := cli.NewRoot("calico-audit", genericiooptions.IOStreams{Out: io.Discard, ErrOut: io.Discard})
	c, rest, err := root.Find(args)
	if err != nil || c.Name() != command {
		t.Fatalf("%q is no %s: %v", args, command, err)
	}
	if err := c.ParseFlags(rest); err != nil {
		t.Errorf("%q: %v", args, err)
	}
	if err := c.ValidateArgs(c.Flags().Args()); err != nil {
		t.Errorf("%q: %v", args, err)
	}
}

// TestAgentManifestsOnServer: a real API server accepts the manifests without warnings
// about unknown fields.
func TestAgentManifestsOnServer(t *testing.T) {
	cluster := testcluster.Shared(t, testcluster.Options{})
	client, err := dynamic.NewForConfig(cluster.Config)
	if err != nil {
		t.Fatal(err)
	}
	for _, patches := range [][]string{nil, allAgentPatches} {
		for _, o := range agentManifests(t, patches...) {
			r := schema.GroupVersionResource{Version: "v1", Resource: "serviceaccounts"}
			if o.GetKind() == "DaemonSet" {
				r = schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "daemonsets"}
			}
			_, err := client.Resource(r).Namespace(o.GetNamespace()).Create(t.Context(), o, metav1.CreateOptions{
				DryRun: []string{metav1.DryRunAll}, FieldValidation: metav1.FieldValidationStrict,
			})
			if err != nil {
				t.Errorf("%s with %q: %v", o.GetKind(), patches, err)
			}
		}
	}
}

// TestAgentCapabilities: with only the manifest's user and capabilities, the agent sees the
// network namespaces of other users' processes. With the patch it also sees the addresses
// in namespaces without a process.
func TestAgentCapabilities(t *testing.T) {
	testenv.Root(t)
	ip := testenv.Program(t, "ip", "iproute2")
	testenv.Program(t, "setpriv", "util-linux")
	run := func(args ...string) {
		t.Helper()
		if out, err := exec.Command(ip, args...).CombinedOutput(); err != nil {
			t.Fatalf("ip %q: %v: %s", args, err, out)
		}
	}
	namespace := func(name, address string) {
		t.Helper()
		run("netns", "add", name)
		t.Cleanup(func() { run("netns", "del", name) })
		run("-n", name, "link", "add", "eth0", "type", "veth", "peer", "name", "eth1")
		run("-n", name, "link", "set", "eth0", "up")
		run("-n", name, "link", "set", "eth1", "up")
		run("-n", name, "addr", "add", address, "dev", "eth0")
	}
	held, named := fmt.Sprintf("ca%d-held", os.Getpid()), fmt.Sprintf("ca%d-named", os.Getpid())
	namespace(held, "10.64.75.5/32")
	namespace(named, "10.64.75.6/32")
	sleep := exec.Command(ip, "netns", "exec", held, "setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups", "sleep", "600")
	if err := sleep.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = sleep.Process.Kill(); _ = sleep.Wait() })
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		comm, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", sleep.Process.Pid))
		if err == nil && strings.TrimSpace(string(comm)) == "sleep" {
			break
		}
		if time.Now().After(end) {
			t.Fatal("the other user's process does not start")
		}
	}
	for _, c := range []struct {
		patches []string
		named   bool
	}{{nil, false}, {[]string{"patch-enter-namespaces.yaml"}, true}} {
		container := agentDaemonSet(t, c.patches...).Spec.Template.Spec.Containers[0]
		view := runContainer(t, container)
		got := map[string]blocks.HostNamespace{}
		for _, n := range view.Namespaces {
			got[n.Name] = n
		}
		if n := got[held]; !slices.Equal(n.Pids, []int{sleep.Process.Pid}) || fmt.Sprint(n.Addresses) != "[10.64.75.5/32]" {
			t.Errorf("with %v, the namespace of another user's process is %+v; gaps %q", container.SecurityContext.Capabilities, n, view.Gaps)
		}
		if n := got[named]; n.ID == "" || (fmt.Sprint(n.Addresses) == "[10.64.75.6/32]") != c.named {
			t.Errorf("with %v, the namespace of no process is %+v", container.SecurityContext.Capabilities, n)
		}
		if missing := strings.Contains(strings.Join(view.Gaps, "\n"), "CAP_SYS_ADMIN"); missing == c.named {
			t.Errorf("with %v, the gaps are %q", container.SecurityContext.Capabilities, view.Gaps)
		}
	}
}

// runContainer runs a container's program once, with the rights of its security context.
func runContainer(t *testing.T, c corev1.Container) *blocks.HostView {
	t.Helper()
	s := c.SecurityContext
	capabilities := "-all"
	for _, add := range s.Capabilities.Add {
		capabilities += ",+" + strings.ToLower(string(add))
	}
	args := []string{
		"--reuid", fmt.Sprint(*s.RunAsUser), "--regid", fmt.Sprint(*s.RunAsGroup), "--clear-groups",
		"--inh-caps", capabilities, "--bounding-set", capabilities,
	}
	if !*s.AllowPrivilegeEscalation {
		args = append(args, "--no-new-privs")
	}
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(t.TempDir(), "calico-audit") // under this name TestMain runs the program
	if err := os.Symlink(exe, program); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("setpriv", append(append(append(args, program), c.Args...), "--once")...)
	cmd.Env = append(os.Environ(), "NODE_NAME=n1")
	var errOut strings.Builder
	cmd.Stderr = &errOut
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%q: %v: %s", cmd.Args, err, errOut.String())
	}
	var view blocks.HostView
	if err := json.Unmarshal(out, &view); err != nil {
		t.Fatal(err)
	}
	if view.Node != "n1" {
		t.Errorf("the node is %q", view.Node)
	}
	return &view
}
