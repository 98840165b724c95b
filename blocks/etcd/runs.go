package etcd

import (
	"cmp"
	"encoding/json"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
)

// RunPrefix is the key prefix of the records of repair runs. etcd records no writers, so these
// records replace an object's managedFields.
const RunPrefix = "/calico-audit/runs/"

// A Run lists the last writes of a run. Each of its transactions also writes the record, so the
// record's ModRevision is that of the last transaction. The run deletes the record at its end,
// unless it leaves a step half-done.
type Run struct {
	Writes []Write `json:"writes"` // oldest first
}

// Write is a write of a run.
type Write struct {
	Key string `json:"key"`
	// Revision is the revision of the write; 0 for the transaction that wrote the record.
	Revision int64     `json:"revision,omitempty"`
	At       time.Time `json:"at"`
}

// runs are the writes of all runs, by key and revision.
type runs map[writeKey]time.Time

type writeKey struct {
	key      string
	revision int64
}

// take adds the record of a run. One that cannot be parsed has no writes.
func (r runs) take(record *mvccpb.KeyValue) {
	var run Run
	if json.Unmarshal(record.Value, &run) != nil {
		return
	}
	for _, w := range run.Writes {
		r[writeKey{w.Key, cmp.Or(w.Revision, record.ModRevision)}] = w.At
	}
}

// wrote returns when a run wrote the value of a key.
func (r runs) wrote(kv *mvccpb.KeyValue) (time.Time, bool) {
	at, ok := r[writeKey{string(kv.Key), kv.ModRevision}]
	return at, ok
}

// WrittenAt returns when the run with a record wrote the value of a key; zero if it did not.
func WrittenAt(record, kv *mvccpb.KeyValue) time.Time {
	r := runs{}
	r.take(record)
	at, _ := r.wrote(kv)
	return at
}
