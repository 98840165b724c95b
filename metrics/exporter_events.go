package metrics

// EventCounts are what became of the Kubernetes Events that an exporter writes.
type EventCounts struct {
	// Written counts the Events created or brought up to date, Failed the requests
	// for Events, or for the Lease, that failed.
	Written, Failed uint64
	// Waiting is how many Events the rate limit holds back.
	Waiting int64
	// Leading is true while this replica is the one that writes.
	Leading bool
}

// Events.
var (
	eventGroup = familyGroup{
		title: "Events", prefix: exporterPrefix,
		about: "An exporter that writes Kubernetes Events (`--events`) has these.",
	}
	eventsWritten = eventGroup.counter("events_written_total", "events", "Events created, or brought up to date.")
	eventErrors   = eventGroup.counter("event_errors_total", "errors", "Requests for Events, or for the Lease by which one replica writes them, that failed.")
	eventsWaiting = eventGroup.gauge("events_waiting", "events", "Events that are due and that the rate limit holds back.")
	eventsWriter  = eventGroup.gauge("events_writer", "", "1 if this replica holds the Lease and writes Events, else 0.")
)

func (c EventCounts) collect(send func(*Family, float64, ...string)) {
	send(eventsWritten, float64(c.Written))
	send(eventErrors, float64(c.Failed))
	send(eventsWaiting, float64(c.Waiting))
	send(eventsWriter, number(c.Leading))
}
