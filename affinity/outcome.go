package affinity

// RouteOutcome is what happens to traffic that reaches a block's owner for an address
// that another node borrowed.
type RouteOutcome int

// The outcomes of such traffic.
const (
	// Unknown: it depends on something that the cluster's objects do not tell.
	Unknown RouteOutcome = iota
	// Delivered: the owner learns a route to the address, or drops nothing.
	Delivered
	// Dropped: the owner's blackhole route wins.
	Dropped
)

// String returns the outcome in one word.
func (f RouteOutcome) String() string { return [...]string{"unknown", "delivered", "dropped"}[f] }

// Prediction is a outcome with the reason for it.
type Prediction struct {
	Outcome RouteOutcome
	// Reason says why, in a clause without a full stop. Where the outcome rests on
	// something that no object of the cluster tells, such as what a router outside
	// does, the reason says so.
	Reason string
	// DecidedBy says, where the outcome is unknown, which fact would settle it.
	DecidedBy string
}
