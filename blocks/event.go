package blocks

// SandboxEvents are the kubelets' events about pods whose network they could not set up. They
// are optional: a report is complete without them.
const SandboxEvents Resource = "events"

// SandboxFailed is the reason of such an event (k8s.io/kubernetes pkg/kubelet/events).
const SandboxFailed = "FailedCreatePodSandBox"

// SandboxEvent is an Event of reason [SandboxFailed].
type SandboxEvent struct {
	Meta
	Namespace string
	// Pod is the name of the pod.
	Pod string
	// Message is the kubelet's error.
	Message string
	// Seen is when the error last occurred; zero if unknown.
	Seen Time
}

// Key identifies the event among all events.
func (e *SandboxEvent) Key() Key { return Key{e.Namespace, e.Name} }
