package repair

// Stage is a stage of the repair after a datastore was restored from a backup, counted from 1.
// The zero value is no stage: the plan is of another repair.
type Stage int

// The stages, in order. Calico's collector must not run before the last one. It frees each address
// whose record names a pod that no longer exists, even if another pod uses it, and a restored
// record may do that.
const (
	StopCollector Stage = iota + 1
	RecordRunning
	ResolveDuplicates
	ReleaseUnused
	StartCollector
)

// stages holds the titles and the repairs of the stages. Stages without repairs are manual work.
var stages = map[Stage]struct {
	title string
	ask   func(*Request)
}{
	StopCollector: {"stop Calico's collector", nil},
	RecordRunning: {"record running pods", func(r *Request) {
		r.SoftDeleted, r.MissingAffinities, r.UnrecordedIPs, r.MissingHandles, r.WhereaboutsReservations = true, true, true, true, true
	}},
	ResolveDuplicates: {"restart pods with an address that cannot be theirs", nil},
	ReleaseUnused: {"release unused objects", func(r *Request) {
		r.LeakedIPs, r.LeakedHandles, r.OrphanAffinities, r.DeadNodes, r.WhereaboutsStranded = true, true, true, true, true
	}},
	StartCollector: {"start Calico's collector again", nil},
}

// String returns what the stage does, as an instruction.
func (s Stage) String() string { return stages[s].title }

// ByHand reports whether only people carry out the stage.
func (s Stage) ByHand() bool { return stages[s].ask == nil }

// Stage returns the request for a stage, with the consents and limits of r. It trusts no recorded
// age, because the objects were restored.
func (r Request) Stage(s Stage) Request {
	for i := range Requests {
		if f := Requests[i].Field; f != nil {
			*f(&r) = false
		}
	}
	r.AfterRestore, r.ObserveTwice = s, true
	if ask := stages[s].ask; ask != nil {
		ask(&r)
	}
	return r
}
