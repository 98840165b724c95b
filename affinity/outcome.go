package affinity

// RouteOutcome is the outcome for traffic to a borrowed address that reaches the block's
// owner.
type RouteOutcome int

// The outcomes.
const (
	// Unknown: the cluster's objects do not record enough.
	Unknown RouteOutcome = iota
	// Delivered: the owner learns a route to the address, or has no blackhole.
	Delivered
	// Dropped: the owner's blackhole route wins.
	Dropped
)

// String returns the outcome in one word.
func (f RouteOutcome) String() string { return [...]string{"unknown", "delivered", "dropped"}[f] }

// Words returns the outcome in words, for a sentence.
func (f RouteOutcome) Words() string {
	if f == Unknown {
		return "not known"
	}
	return f.String()
}

// Prediction is an outcome with its reason.
type Prediction struct {
	Outcome RouteOutcome
	// Reason explains the outcome, as a clause without a full stop. It mentions assumptions
	// that no object of the cluster records, such as the behaviour of an outside router.
	Reason string
	// DecidedBy names the fact that would settle an unknown outcome.
	DecidedBy string
}
