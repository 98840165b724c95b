package testcluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/wait"
	yamlutil "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/rest"

	"github.com/calico-audit/calico-audit/internal/testcluster/programs"
)

// StartCalicoAPIServer starts the real calico-apiserver with the rights of its manifest, and
// registers it, so that the API server serves projectcalico.org/v3 by it. The cluster must not
// have the CRDs of that group, and must not be shared, because its API server is restarted with
// a certificate for such servers. StartCalicoAPIServer returns when the group is served.
func (c *Cluster) StartCalicoAPIServer(tb testing.TB) *Daemon {
	tb.Helper()
	ctx := tb.Context()
	if err := c.enableAggregation(ctx); err != nil {
		tb.Fatalf("starting calico-apiserver: %v", err)
	}
	service, err := c.installCalicoAPIServer(ctx)
	if err != nil {
		tb.Fatalf("starting calico-apiserver: %v", err)
	}
	kubeconfig, err := c.calicoAPIServerKubeconfig(ctx)
	if err != nil {
		tb.Fatalf("starting calico-apiserver: %v", err)
	}
	d, port := c.startDaemon(tb, "calico-apiserver", []string{"DATASTORE_TYPE=kubernetes", "KUBECONFIG=" + kubeconfig}, func() ([]string, error) {
		return []string{"--kubeconfig=" + kubeconfig, "--authentication-kubeconfig=" + kubeconfig, "--authorization-kubeconfig=" + kubeconfig}, nil
	})
	if err := c.registerCalicoAPIServer(ctx, service, port); err != nil {
		tb.Fatalf("registering calico-apiserver: %v", err)
	}
	return d
}

// aggregator is the name in the API server's client certificate. Extension servers trust the user
// that its requests name.
const aggregator = "aggregator"

// enableAggregation restarts the API server with the certificate.
func (c *Cluster) enableAggregation(ctx context.Context) error {
	pair, err := c.authority.user(aggregator, nil)
	if err != nil {
		return err
	}
	cert, err := c.write("aggregator.crt", pair.cert)
	if err != nil {
		return err
	}
	key, err := c.write("aggregator.key", pair.key)
	if err != nil {
		return err
	}
	return c.AddAPIServerArgs(ctx,
		"--proxy-client-cert-file="+cert, "--proxy-client-key-file="+key,
		"--requestheader-client-ca-file="+c.path("ca.crt"), "--requestheader-allowed-names="+aggregator,
		"--requestheader-username-headers=X-Remote-User", "--requestheader-group-headers=X-Remote-Group",
		"--requestheader-extra-headers-prefix=X-Remote-Extra-",
	)
}

const calicoAPIServerNamespace = "calico-apiserver"

// installCalicoAPIServer creates the account and the rights of Calico's manifest, and returns the
// APIService.
func (c *Cluster) installCalicoAPIServer(ctx context.Context) (service *unstructured.Unstructured, err error) {
	dir, err := programs.CalicoDir(ctx)
	if err != nil {
		return nil, err
	}
	manifest, err := os.ReadFile(filepath.Join(dir, "manifests", "apiserver.yaml"))
	if err != nil {
		return nil, err
	}
	var objects bytes.Buffer
	for decoder := yamlutil.NewYAMLOrJSONDecoder(bytes.NewReader(manifest), 4096); ; {
		u := &unstructured.Unstructured{}
		if err := decoder.Decode(u); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, err
		}
		switch u.GetKind() {
		case "Namespace", "ServiceAccount", "ClusterRole", "ClusterRoleBinding":
			text, err := u.MarshalJSON()
			if err != nil {
				return nil, err
			}
			fmt.Fprintf(&objects, "---\n%s\n", text)
		case "APIService":
			service = u
		}
	}
	path, err := c.write("calico-apiserver.yaml", objects.Bytes())
	if err != nil {
		return nil, err
	}
	_, err = c.Kubectl(ctx, "apply", "-f", path)
	return service, err
}

// calicoAPIServerKubeconfig writes a kubeconfig with a token of the account.
func (c *Cluster) calicoAPIServerKubeconfig(ctx context.Context) (string, error) {
	token, err := c.Kube.CoreV1().ServiceAccounts(calicoAPIServerNamespace).
		CreateToken(ctx, "calico-apiserver", &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		return "", err
	}
	path := c.path("kubeconfig-calico-apiserver")
	return path, writeKubeconfig(path, &rest.Config{
		Host: c.Config.Host, BearerToken: token.Status.Token, TLSClientConfig: rest.TLSClientConfig{CAData: c.Config.CAData},
	})
}

// registerCalicoAPIServer makes the API server forward requests to the port, and waits until it
// does.
func (c *Cluster) registerCalicoAPIServer(ctx context.Context, service *unstructured.Unstructured, port int) error {
	objects := fmt.Sprintf(`{"apiVersion": "v1", "kind": "Service", "metadata": {"name": "calico-api", "namespace": %q},
"spec": {"type": "ExternalName", "externalName": "localhost"}}
---
`, calicoAPIServerNamespace)
	spec := service.Object["spec"].(map[string]any)
	spec["insecureSkipTLSVerify"] = true // the certificate names localhost
	spec["service"].(map[string]any)["port"] = int64(port)
	text, err := service.MarshalJSON()
	if err != nil {
		return err
	}
	path, err := c.write("calico-api.yaml", append([]byte(objects), text...))
	if err != nil {
		return err
	}
	if _, err := c.Kubectl(ctx, "apply", "-f", path); err != nil {
		return err
	}
	var last error
	err = wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, readyTimeout, true, func(ctx context.Context) (bool, error) {
		_, last = c.List(ctx, NativeV3.Resource("ippools"))
		return last == nil, nil
	})
	if err != nil {
		return fmt.Errorf("%s is not served: %w", NativeV3, last)
	}
	return nil
}
