package blocks

import (
	"fmt"
	"time"
)

// DefaultMaxBlocks is the number of blocks per family that a node may hold if the IPAM
// configuration sets no limit (libcalico-go ipam/ipam.go, autoAssign).
const DefaultMaxBlocks = 20

// IPAMConfig is Calico's global IPAM configuration, the object named "default".
type IPAMConfig struct {
	Meta
	// Present is false if the object does not exist. Calico then uses the values of
	// [DefaultIPAMConfig], and writes them at its next assignment.
	Present bool
	// StrictAffinity forbids borrowing: a node uses only addresses of its own blocks.
	StrictAffinity bool
	// AutoAllocateBlocks lets nodes claim blocks automatically.
	AutoAllocateBlocks bool
	// MaxBlocksPerHost limits a node's blocks per family; 0 means
	// [DefaultMaxBlocks].
	MaxBlocksPerHost int
	// Cooldown is how long a released address is kept from reassignment (ipCooldownSeconds,
	// Calico v3.33 and newer); 0 in older releases.
	Cooldown time.Duration
}

// DefaultIPAMConfig returns Calico's defaults for a cluster without an IPAM configuration.
func DefaultIPAMConfig() IPAMConfig { return IPAMConfig{AutoAllocateBlocks: true} }

// BlockLimit returns how many blocks of each family a node may hold.
func (c *IPAMConfig) BlockLimit() int {
	if c.MaxBlocksPerHost > 0 {
		return c.MaxBlocksPerHost
	}
	return DefaultMaxBlocks
}

// ClusterInfo is the ClusterInformation named "default".
type ClusterInfo struct {
	Meta
	Present       bool
	GUID          string
	CalicoVersion string
	// Locked is true if datastoreReady is false: "calicoctl datastore migrate lock" was
	// run, and IPAM does nothing until the datastore is unlocked.
	Locked bool
}

// Migration is a DatastoreMigration: kube-controllers moves Calico's objects from the older
// API group to the newer (kube-controllers pkg/controllers/migration, since v3.32).
type Migration struct {
	Meta
	// Phase is status.phase; empty until the controller has seen the object.
	Phase string
}

// The phases of a migration (kube-controllers pkg/apis/migration). Before Converged, both
// groups are locked and the older is authoritative. From Converged on, the newer is
// unlocked; the older stays locked until the object and the older CRDs are deleted.
const (
	MigrationPending   = "Pending"
	MigrationMigrating = "Migrating"
	MigrationWaiting   = "WaitingForConflictResolution"
	MigrationConverged = "Converged"
	MigrationComplete  = "Complete"
	MigrationFailed    = "Failed"
)

// Moved reports whether Calico's components already use the newer API group.
func (m *Migration) Moved() bool {
	return m.Phase == MigrationConverged || m.Phase == MigrationComplete
}

// ControllersConfig is the KubeControllersConfiguration named "default".
type ControllersConfig struct {
	Meta
	Present bool
	// NodeController is false if controllers.node is absent. Leaked addresses and empty
	// blocks are then never collected.
	NodeController bool
	// LeakGrace is the node controller's leakGracePeriod; LeakGraceSet is false if the
	// field is absent. Calico's clients default it to 15 minutes on write, but treat
	// absence as "off" on read.
	LeakGrace    time.Duration
	LeakGraceSet bool
	// LoadBalancer is true if controllers.loadBalancer is present, so that kube-controllers
	// assigns addresses to Services.
	LoadBalancer bool
	// Reported is true if status.runningConfig names a controller: kube-controllers wrote it
	// when it started. LoadBalancerRuns is true if it names the loadBalancer controller: the environment variable
	// ENABLED_CONTROLLERS overrides the spec (kube-controllers pkg/config,
	// mergeEnabledControllers).
	Reported, LoadBalancerRuns bool
	// RequestedOnly is true if the loadBalancer controller serves only Services that ask for it by an
	// annotation or by Calico's class (assignIPs: RequestedServicesOnly).
	RequestedOnly bool
}

// FelixConfig is the FelixConfiguration named "default".
type FelixConfig struct {
	Meta
	Present bool
	// BPFEnabled is true if the eBPF data plane is on.
	BPFEnabled bool
	// ProgramClusterRoutes selects who programs the routes of IPIP and unencapsulated
	// pools: "Enabled" means Felix, "Disabled" BIRD. "EnabledIPIPOnly" (Calico v3.33 and
	// newer) means Felix for IPIP pools and BIRD for the others. Empty means the version's
	// default.
	ProgramClusterRoutes string
	// RouteSource is the source of Felix's routes: "CalicoIPAM" (or empty) means blocks and
	// their allocations, "WorkloadIPs" each pod's address.
	RouteSource string
	// VXLANEnabled and IPIPEnabled turn tunnels on or off regardless of the pools; nil leaves it to
	// the pools (before Calico v3.23: off).
	VXLANEnabled, IPIPEnabled *bool
	// VXLANPort and VXLANVNI are those of VXLAN packets; 0 means Felix's default.
	VXLANPort, VXLANVNI int
	// FloatingIPs is "Enabled" if Felix translates the floating IPs of pods. Empty means Disabled, since
	// Calico v3.21.5, v3.22.2 and v3.23.
	FloatingIPs string
}

// Rejected explains why Calico rejects the settings; empty if it accepts them.
func (c *IPAMConfig) Rejected() string {
	switch {
	case !c.StrictAffinity && !c.AutoAllocateBlocks:
		return "without strict affinity, automatic blocks must be on; as it is, pods of nodes without a free address in a block of their own get none"
	case c.MaxBlocksPerHost > 0 && !c.StrictAffinity:
		return fmt.Sprintf("maxBlocksPerHost (%d) needs strict affinity", c.MaxBlocksPerHost)
	}
	return ""
}
