package blocks

import "time"

// DefaultMaxBlocks is how many blocks of one family a node may hold when the
// IPAM configuration sets no limit (libcalico-go ipam/ipam.go, autoAssign).
const DefaultMaxBlocks = 20

// IPAMConfig is Calico's global IPAM configuration, the object named "default".
type IPAMConfig struct {
	Meta
	// Present is false where no object exists; Calico then works with, and at
	// its next assignment writes, the values that [DefaultIPAMConfig] returns.
	Present bool
	// StrictAffinity forbids borrowing: a node uses addresses of its own blocks
	// only.
	StrictAffinity bool
	// AutoAllocateBlocks lets nodes claim blocks by themselves.
	AutoAllocateBlocks bool
	// MaxBlocksPerHost limits a node's blocks per family; 0 means
	// [DefaultMaxBlocks].
	MaxBlocksPerHost int
	// Cooldown is how long a released address waits before it is handed out again
	// (ipCooldownSeconds, Calico v3.33 and newer); 0 where Calico knows no such
	// thing.
	Cooldown time.Duration
}

// DefaultIPAMConfig is what Calico assumes where no configuration exists.
func DefaultIPAMConfig() IPAMConfig { return IPAMConfig{AutoAllocateBlocks: true} }

// BlockLimit returns how many blocks of one family a node may hold.
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
	// Locked is true if datastoreReady is false: somebody ran
	// "calicoctl datastore migrate lock", and IPAM stands still until it is
	// unlocked.
	Locked bool
}

// Migration is a DatastoreMigration: kube-controllers moves Calico's objects from the older
// API group to the newer one (kube-controllers pkg/controllers/migration, from v3.32).
type Migration struct {
	Meta
	// Phase is status.phase; empty before the controller has seen the object.
	Phase string
}

// The phases of a migration (kube-controllers pkg/apis/migration). Until Converged both
// groups are locked, and the older one counts; from Converged on the newer one is unlocked,
// and the older stays locked until the object is deleted, with its CRDs.
const (
	MigrationPending   = "Pending"
	MigrationMigrating = "Migrating"
	MigrationWaiting   = "WaitingForConflictResolution"
	MigrationConverged = "Converged"
	MigrationComplete  = "Complete"
	MigrationFailed    = "Failed"
)

// Moved reports whether Calico's programs use the newer API group already.
func (m *Migration) Moved() bool {
	return m.Phase == MigrationConverged || m.Phase == MigrationComplete
}

// ControllersConfig is the KubeControllersConfiguration named "default".
type ControllersConfig struct {
	Meta
	Present bool
	// NodeController is false if controllers.node is absent: nothing then
	// collects leaked addresses or empty blocks.
	NodeController bool
	// LeakGrace is the node controller's leakGracePeriod; LeakGraceSet is false
	// where it is absent. Calico fills in 15 minutes when its own clients write the
	// object, and takes absence for "off" when it reads one.
	LeakGrace    time.Duration
	LeakGraceSet bool
}

// FelixConfig is the FelixConfiguration named "default".
type FelixConfig struct {
	Meta
	Present bool
	// BPFEnabled is true under the eBPF data plane.
	BPFEnabled bool
	// ProgramClusterRoutes tells who programs the routes of IPIP and
	// unencapsulated pools: "Enabled" Felix, "Disabled" BIRD, "EnabledIPIPOnly"
	// (Calico v3.33 and newer) Felix those of IPIP pools and BIRD the others;
	// empty for the version's default.
	ProgramClusterRoutes string
	// RouteSource is what Felix makes routes from: "CalicoIPAM" the blocks and
	// their allocations, which is what empty means, "WorkloadIPs" each pod's
	// address by itself.
	RouteSource string
}
