// Package seeding creates IPAM states in a test cluster with Calico's own IPAM client. A
// [Seeder] acts as CNI plugin, calico/node and kubelet, with the same libcalico-go calls,
// so that blocks, affinities and handles are like those of a real cluster. [Story],
// [Healthy] and similar functions create whole clusters, [Random] creates a state from a
// seed, and [Seeder.Bulk] creates large clusters.
package seeding

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"sync/atomic"
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

// Seeder creates IPAM states in a cluster, in the group crd.projectcalico.org/v1, as
// Calico's components and the kubelet would. libcalico-go's IPAM client writes all
// blocks, affinities and handles. The methods of a Seeder are safe for concurrent use.
type Seeder struct {
	// Cluster is the cluster to write to.
	Cluster *testcluster.Cluster
	// Calico is the client for Calico's objects.
	Calico calico.Interface

	// kubelet is the client for nodes and pods, with the kubelet's user agent.
	kubelet kubernetes.Interface
	// version is the Kubernetes version that kubelets report.
	version string
	// etcd is true if Calico keeps its objects in etcd: see NewEtcd.
	etcd bool

	mu        sync.Mutex
	nodeCount int
	nextPod   atomic.Int64 // counts pods that only ask for an address
}

// New returns a Seeder for a cluster that serves crd.projectcalico.org/v1. It creates no
// objects yet.
func New(c *testcluster.Cluster) (*Seeder, error) { return NewAs(c, c.KubeconfigPath()) }

// NewAs is New with a kubeconfig for Calico's objects.
func NewAs(c *testcluster.Cluster, path string) (*Seeder, error) {
	kubeconfig, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("reading the cluster's kubeconfig: %w", err)
	}
	config := apiconfig.NewCalicoAPIConfig()
	config.Spec.DatastoreType = apiconfig.Kubernetes
	config.Spec.KubeconfigInline = string(kubeconfig)
	config.Spec.K8sClientQPS = 10000
	return seederOf(c, config)
}

// NewEtcd returns a Seeder for a Calico that keeps its objects in the API server's etcd, under its
// own keys. Nodes and pods are in Kubernetes, without Calico's annotations: Calico's own nodes and
// WorkloadEndpoints replace these. Methods that edit objects through the API server do not work.
func NewEtcd(c *testcluster.Cluster) (*Seeder, error) {
	config := apiconfig.NewCalicoAPIConfig()
	config.Spec.DatastoreType = apiconfig.EtcdV3
	config.Spec.EtcdEndpoints = c.EtcdEndpoint()
	s, err := seederOf(c, config)
	if err == nil {
		s.etcd = true
	}
	return s, err
}

func seederOf(c *testcluster.Cluster, config *apiconfig.CalicoAPIConfig) (*Seeder, error) {
	quietOnce.Do(quietCalico)
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

// quietCalico silences libcalico-go, which logs every step of an allocation, unless
// CALICO_AUDIT_TEST_LOG is set.
func quietCalico() {
	if os.Getenv("CALICO_AUDIT_TEST_LOG") == "" {
		logrus.SetOutput(io.Discard)
		logrus.SetLevel(logrus.PanicLevel)
	}
}

// ClusterGUID is the GUID that Init gives to a cluster.
const ClusterGUID = "5ca1ab1e0ddba115ca1ab1e0ddba1150"

// Init creates the objects of a fresh Calico installation: ClusterInformation,
// KubeControllersConfiguration and FelixConfiguration, all named default. Existing
// objects stay unchanged. (calicoctl ipam check does not run without them.)
//
// It mirrors ensureClusterInformation (libcalico-go/lib/clientv3/client.go),
// ensureDefaultConfig (node/pkg/lifecycle/startup/startup.go) and
// NewDefaultKubeControllersConfig (kube-controllers/pkg/config/runconfig.go), but always
// uses the same GUID.
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
