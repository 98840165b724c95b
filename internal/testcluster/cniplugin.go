package testcluster

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/calico-audit/calico-audit/internal/testcluster/programs"
)

// CNIAdd describes a call of Calico's CNI plugin that is expected to fail before it changes any
// interface.
type CNIAdd struct {
	// Node is the node's name in the CNI configuration.
	Node, Namespace, Pod string
	// Kubeconfig is the plugin's; "" means the administrator's.
	Kubeconfig string
	// NodenameFile is the file that calico-node writes; "" means that none is needed.
	NodenameFile string
	// Pools are ipv4_pools of the CNI configuration.
	Pools []string
}

// FailCNIAdd runs Calico's CNI plugin, which calls its IPAM plugin, as a container runtime does. It
// records the error as an event of the pod, with the words of kubelet and containerd, and returns
// the error. It is an error if the plugin succeeds.
func (c *Cluster) FailCNIAdd(ctx context.Context, a CNIAdd) (string, error) {
	ipamPlugin, err := programs.Binary(ctx, "calico-ipam")
	if err != nil {
		return "", err
	}
	bin := c.path("cni")
	if err := os.MkdirAll(bin, 0o755); err != nil {
		return "", err
	}
	for _, name := range []string{"calico", "calico-ipam"} { // one program, which goes by its name
		if err := os.Symlink(ipamPlugin, filepath.Join(bin, name)); err != nil && !errors.Is(err, os.ErrExist) {
			return "", err
		}
	}
	config, err := json.Marshal(map[string]any{
		"cniVersion": "0.3.1", "name": "k8s-pod-network", "type": "calico", "datastore_type": "kubernetes", "log_level": "error",
		"nodename": a.Node, "nodename_file": a.NodenameFile, "nodename_file_optional": a.NodenameFile == "", "ipam_lock_file": c.path("cni.lock"),
		"ipam": map[string]any{"type": "calico-ipam", "ipv4_pools": a.Pools}, "policy": map[string]any{"type": "k8s"},
		"kubernetes": map[string]any{"kubeconfig": cmp.Or(a.Kubeconfig, c.KubeconfigPath())},
	})
	if err != nil {
		return "", err
	}
	sandbox := strings.Repeat("0c1e", 16)
	plugin := exec.CommandContext(ctx, filepath.Join(bin, "calico"))
	plugin.Stdin = bytes.NewReader(config)
	plugin.Env = []string{
		"CNI_COMMAND=ADD", "CNI_CONTAINERID=" + sandbox, "CNI_NETNS=" + c.path("no-netns"), "CNI_IFNAME=eth0", "CNI_PATH=" + bin,
		"CNI_ARGS=IgnoreUnknown=1;K8S_POD_NAMESPACE=" + a.Namespace + ";K8S_POD_NAME=" + a.Pod + ";K8S_POD_INFRA_CONTAINER_ID=" + sandbox,
	}
	out, err := plugin.Output()
	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		return "", fmt.Errorf("the CNI plugin was expected to fail: %w, %s", err, out)
	}
	var failed struct {
		Message string `json:"msg"`
	}
	if err := json.Unmarshal(out, &failed); err != nil || failed.Message == "" {
		return "", fmt.Errorf("the CNI plugin printed no error: %w, %s, %s", err, out, exit.Stderr)
	}
	return failed.Message, c.sandboxEvent(ctx, a.Namespace, a.Pod, sandbox, failed.Message)
}

// sandboxEvent records an error of the CNI plugin as the kubelet does.
func (c *Cluster) sandboxEvent(ctx context.Context, namespace, pod, sandbox, message string) error {
	now := metav1.NewTime(time.Now())
	object := corev1.ObjectReference{Kind: "Pod", Namespace: namespace, Name: pod, APIVersion: "v1"}
	if p, err := c.Kube.CoreV1().Pods(namespace).Get(ctx, pod, metav1.GetOptions{}); err == nil {
		object.UID = p.UID
	}
	_, err := c.Kube.CoreV1().Events(namespace).Create(ctx, &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, GenerateName: pod + "."}, InvolvedObject: object,
		Type: corev1.EventTypeWarning, Reason: "FailedCreatePodSandBox", FirstTimestamp: now, LastTimestamp: now, Count: 1,
		Source: corev1.EventSource{Component: "kubelet"},
		Message: fmt.Sprintf(`Failed to create pod sandbox: rpc error: code = Unknown desc = failed to setup network for sandbox "%s": plugin type="calico" failed (add): %s`,
			sandbox, message),
	}, metav1.CreateOptions{})
	return err
}
