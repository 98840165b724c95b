package repair

import (
	"time"

	"github.com/calico-audit/calico-audit/blocks"
)

// The functions of this file say how much a journal proves. A change is taken down
// before it is sent, so that by itself it does not say that it was carried out.

// fate is what a journal tells of whether a step was carried out.
type fate int

const (
	// unwritten: what was sent was refused, or nothing was sent.
	unwritten fate = iota
	// doubtful: some of it may have been carried out.
	doubtful
	// written: it was carried out.
	written
)

// undecided tells whether the end of a step says nothing about it: the run did not
// come to it, or could not judge it.
func (e *JournalEntry) undecided() bool {
	switch e.Code {
	case SkipUnread, SkipJournal, SkipHalfDone, SkipCode(RefusedLocked), SkipCode(RefusedVersion), SkipCode(RefusedNotRead):
		return e.Status == Skipped || e.Status == NotTried
	default:
		return e.Status == NotTried
	}
}

// fate returns what became of a step in all runs of the journal together.
func (f *JournalFile) fate(step string) fate {
	out, here := unwritten, false // here: the last change is of this run
	for i := range f.Entries {
		e := &f.Entries[i]
		switch {
		case e.Event == EventResume:
			here = false
		case e.Step != step:
		case e.Event == EventChange:
			out, here = doubtful, true
		case e.Event != EventEnd || e.undecided():
		case e.Status == Done && out != unwritten:
			out = written
		case e.Status == Skipped, e.Status == Already && here:
			// Found already so in the very run that tried: by somebody else. Found so
			// by a later run, it may be the work of the one that broke off.
			out = unwritten
		}
	}
	return out
}

// deleteSent tells whether the deletion of an object was sent when the step was
// tried last. It is sent only after the object was marked, so that whoever removed
// the object then did so because of the mark.
func (f *JournalFile) deleteSent(step string, c *Change) bool {
	sent, uid := false, storedObject(c.Before).Metadata.UID
	for _, e := range f.Entries {
		switch {
		case e.Step != step:
		case e.Event == EventStart:
			sent = false
		case e.Event == EventChange && e.Change.Verb == VerbDelete && e.Change.Resource == c.Resource && e.Change.Name == c.Name:
			sent = storedObject(e.Change.Before).Metadata.UID == uid
		}
	}
	return sent
}

// freed tells whether it was the step's own write that freed an address: it ended
// done without a doubt, or went on to the next object. A block's sequence number
// does not tell, for a release by its node raises it alike.
func (f *JournalFile) freed(step string) bool {
	sent, freed := false, false
	for _, e := range f.Entries {
		switch {
		case e.Step != step:
		case e.Event == EventStart:
			sent = false
		case e.Event == EventChange && e.Change.Resource == blocks.Blocks && e.Change.Verb == VerbPatch:
			sent, freed = true, false
		case e.Event == EventChange:
			freed = freed || sent
		case e.Event == EventEnd && e.Status == Done && e.Reason == "":
			freed = freed || sent
		}
	}
	return freed
}

// lastWrite returns when the last write of a step to an object was taken down, by
// the API server's clock, and the state that it was to give the object.
func (f *JournalFile) lastWrite(step string, r blocks.Resource, name string) (at time.Time, state string) {
	for _, e := range f.Entries {
		if e.Event == EventChange && e.Step == step && e.Change.Resource == r && e.Change.Name == name {
			at, state = e.At.Time, storedObject(e.Change.After).Spec.State
		}
	}
	return at, state
}
