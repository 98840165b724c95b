package events

import (
	"log/slog"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// trouble is something that can go wrong for long, with what is said when it begins
// to, and when it is over.
type trouble struct{ bad, good string }

var (
	troubleLease = trouble{
		"The Lease by which one replica writes Events cannot be had; it is tried again",
		"The Lease by which one replica writes Events can be had again",
	}
	troubleType = trouble{
		"The type of the object that Events are to be about is not known; Events about no node are not written as long as that is so",
		"The type of the object that Events are to be about is known again",
	}
	troubleObject = trouble{
		"The object that Events are about cannot be read; without its UID kubectl describe does not show them",
		"The object that Events are about can be read again",
	}
	troubleList = trouble{
		"Events cannot be read, and none are written as long as that is so",
		"Events can be read again",
	}
	troubleWrite = trouble{
		"Events cannot be written; it is tried again",
		"Events can be written again",
	}
	troubleRefused = trouble{
		"The API server refuses an Event; it is tried again later, and others before",
		"The API server takes Events again that it refused",
	}
)

// troubles says each trouble once, until it is over.
type troubles struct {
	log *slog.Logger

	mu  sync.Mutex
	now map[troubleKey]string // the kind of error
}

type troubleKey struct {
	trouble
	where string
}

// note records how something went. It is logged if it went wrong in a way in which
// it did not before, and if it goes well again. Errors of one kind may read
// differently each time.
func (t *troubles) note(x trouble, where string, err error, args ...any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	key, kind := troubleKey{x, where}, string(apierrors.ReasonForError(err))
	before, was := t.now[key]
	switch {
	case err == nil && was:
		delete(t.now, key)
		t.log.Info(x.good, args...)
	case err != nil && (!was || before != kind):
		t.now[key] = kind
		t.log.Warn(x.bad, append(args, "err", err)...)
	}
}
