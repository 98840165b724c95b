// Package seeding brings about IPAM states on a test cluster by means of Calico's own
// IPAM client. What a CNI plugin, calico/node and kubelet would do is done by a
// [Seeder], with the same calls of libcalico-go that those make, so that blocks,
// affinities and handles are those that a cluster would have. [Story], [Healthy] and
// their like are whole clusters, [Random] is one that a seed decides, and
// [Seeder.Bulk] makes large ones.
package seeding

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	apiv3 "github.com/projectcalico/api/pkg/apis/projectcalico/v3"
	"github.com/projectcalico/calico/libcalico-go/lib/apiconfig"
	calico "github.com/projectcalico/calico/libcalico-go/lib/clientv3"
	"github.com/projectcalico/calico/libcalico-go/lib/options"
	"github.com/sirupsen/logrus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/calico-audit/calico-audit/internal/testcluster"
	"github.com/calico-audit/calico-audit/internal/testcluster/programs"
)

// Seeder brings about IPAM states on a cluster, in the group
// crd.projectcalico.org/v1, as Calico's components and kubelet would: it does
// not write blocks, affinities and handles, but has libcalico-go's IPAM client
// write them. Its methods may be called from several goroutines.
type Seeder struct {
	// Cluster is where the state is brought about.
	Cluster *testcluster.Cluster
	// Calico is the client that writes it.
	Calico calico.Interface

	// kubelet is the client that writes nodes and pods, in kubelet's name.
	kubelet kubernetes.Interface
	// version is that of Kubernetes, which kubelets report.
	version string

	mu        sync.Mutex
	nodeCount int
}

// New returns a Seeder for a cluster that serves crd.projectcalico.org/v1.
// The cluster gets no objects yet.
func New(c *testcluster.Cluster) (*Seeder, error) {
	quietOnce.Do(quietCalico)
	kubeconfig, err := os.ReadFile(c.KubeconfigPath())
	if err != nil {
		return nil, fmt.Errorf("reading the cluster's kubeconfig: %w", err)
	}
	config := apiconfig.NewCalicoAPIConfig()
	config.Spec.DatastoreType = apiconfig.Kubernetes
	config.Spec.KubeconfigInline = string(kubeconfig)
	config.Spec.K8sClientQPS = 10000
	client, err := calico.New(*config)
	if err != nil {
		return nil, fmt.Errorf("making Calico's client: %w", err)
	}
	asKubelet := rest.CopyConfig(c.Config)
	asKubelet.UserAgent = "kubelet/testcluster"
	kubelet, err := kubernetes.NewForConfig(asKubelet)
	if err != nil {
		return nil, err
	}
	version, err := c.Kube.Discovery().ServerVersion()
	if err != nil {
		return nil, fmt.Errorf("asking for the API server's version: %w", err)
	}
	return &Seeder{Cluster: c, Calico: client, kubelet: kubelet, version: version.GitVersion}, nil
}

var quietOnce sync.Once

// quietCalico keeps libcalico-go, which tells every step of an allocation, off
// the test's output, unless CALICO_AUDIT_TEST_LOG asks for it.
func quietCalico() {
	if os.Getenv("CALICO_AUDIT_TEST_LOG") == "" {
		logrus.SetOutput(io.Discard)
		logrus.SetLevel(logrus.PanicLevel)
	}
}

// ClusterGUID is the identity that Init gives to a cluster.
const ClusterGUID = "5ca1ab1e0ddba115ca1ab1e0ddba1150"

// Init writes what a fresh Calico installation has: ClusterInformation,
// KubeControllersConfiguration and FelixConfiguration, all named default. What
// exists stays as it is. (calicoctl ipam check refuses to run without them.)
//
// It mirrors ensureClusterInformation (libcalico-go/lib/clientv3/client.go),
// ensureDefaultConfig (node/pkg/lifecycle/startup/startup.go) and
// NewDefaultKubeControllersConfig (kube-controllers/pkg/config/runconfig.go),
// but with a GUID that is always the same.
func (s *Seeder) Init(ctx context.Context) error {
	release, err := programs.CalicoRelease()
	if err != nil {
		return err
	}
	ready := true
	info := apiv3.NewClusterInformation()
	info.Name = "default"
	info.Spec = apiv3.ClusterInformationSpec{
		ClusterGUID: ClusterGUID, ClusterType: "k8s,bgp,kdd", CalicoVersion: release, DatastoreReady: &ready,
	}
	felix := apiv3.NewFelixConfiguration()
	felix.Name = "default"
	felix.Spec.ReportingInterval = &metav1.Duration{}
	felix.Spec.LogSeverityScreen = "Info"

	_, infoErr := s.Calico.ClusterInformation().Create(ctx, info, options.SetOptions{})
	_, felixErr := s.Calico.FelixConfigurations().Create(ctx, felix, options.SetOptions{})
	_, controllersErr := s.Calico.KubeControllersConfiguration().Create(ctx, defaultControllers(), options.SetOptions{})
	err = errors.Join(unlessExists(infoErr), unlessExists(felixErr), unlessExists(controllersErr))
	if err != nil {
		return fmt.Errorf("writing Calico's default configuration: %w", err)
	}
	return nil
}

func defaultControllers() *apiv3.KubeControllersConfiguration {
	period := &metav1.Duration{Duration: 5 * time.Minute}
	k := apiv3.NewKubeControllersConfiguration()
	k.Name = "default"
	k.Spec = apiv3.KubeControllersConfigurationSpec{
		LogSeverityScreen:      "Info",
		HealthChecks:           apiv3.Enabled,
		EtcdV3CompactionPeriod: &metav1.Duration{Duration: 10 * time.Minute},
		Controllers: apiv3.ControllersConfig{
			Node: &apiv3.NodeControllerConfig{
				ReconcilerPeriod: period,
				SyncLabels:       apiv3.Enabled,
				HostEndpoint: &apiv3.AutoHostEndpointConfig{
					AutoCreate:                apiv3.Disabled,
					CreateDefaultHostEndpoint: apiv3.DefaultHostEndpointsEnabled,
				},
				LeakGracePeriod: &metav1.Duration{Duration: 15 * time.Minute},
			},
			Policy:           &apiv3.PolicyControllerConfig{ReconcilerPeriod: period},
			WorkloadEndpoint: &apiv3.WorkloadEndpointControllerConfig{ReconcilerPeriod: period},
			ServiceAccount:   &apiv3.ServiceAccountControllerConfig{ReconcilerPeriod: period},
			Namespace:        &apiv3.NamespaceControllerConfig{ReconcilerPeriod: period},
			LoadBalancer:     &apiv3.LoadBalancerControllerConfig{AssignIPs: apiv3.AllServices},
		},
	}
	return k
}
