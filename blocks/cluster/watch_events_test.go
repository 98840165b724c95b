package cluster

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/calico-audit/calico-audit/blocks/decode"
)

// Names of deleted objects do not stay in memory forever.
func TestWatchForgetsNames(t *testing.T) {
	w := &Watch{strings: &decode.SharedStrings{}}
	most := 0
	for i := range 1_000_000 {
		s := w.sharing()
		s.Bytes([]byte(fmt.Sprint("pod-", i)))
		most = max(most, s.Len())
	}
	if most > 150_000 {
		t.Errorf("%d names of no object are kept", most)
	}
}

// A stream that does not belong to a watch ends with an error.
func TestBadEvents(t *testing.T) {
	for text, want := range map[string]string{
		`{"type": "ADDED", "object": {"metadata": {"name": "a"}}}{"type"`: "unexpected EOF",
		`{"type": "ADDED"}`: "the answer is not a watch event",
		`<html>`:            "invalid character '<'",
		`{"type": "ERROR", "object": {"code": 410, "message": "too old resource version: 1 (2)"}}`: "410 Gone: too old resource version",
		`{"type": "ERROR", "object": {}}`:             "500 Internal Server Error",
		`{"type": "ERROR", "object": ["no status"]}`:  "the answer is not a watch event",
		`{"type": "ADDED", "object": {"metadata": 3}`: "unexpected EOF",
	} {
		if err := drain(newEventReader(strings.NewReader(text))); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got error %v, want %s", text, err, want)
		}
	}
	for text, want := range map[string]string{
		"\x00\x00":                           "unexpected EOF",
		"\xff\xff\xff\xff":                   "invalid character",
		"\x00\x00\x00\x05\x0a\x05AD":         "unexpected EOF",
		"\x00\x00\x00\x07\x0a\x05ADDED":      "malformed protobuf",
		"\x00\x00\x00\x03\x0a\x05A":          "unexpected EOF",
		"\x00\x00\x00\x06\x12\x04\x0a\x02k8": "malformed protobuf",
	} {
		if err := drain(newEventReader(strings.NewReader(text))); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got error %v, want %s", text, err, want)
		}
	}
}

// drain reads events up to the first error.
func drain(events *eventReader) error {
	for {
		if _, err := events.next(); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
	}
}

// The estimate of the server's clock is never ahead, and follows changes of that clock.
func TestWatchClock(t *testing.T) {
	local := time.Date(2031, 1, 1, 0, 0, 0, 0, time.UTC)
	c := newServerClock(func() time.Time { return local })
	if got := c.At(time.Now()); local.Sub(got) > 2*time.Second || got.After(local) {
		t.Errorf("without a Date header: %v, want %v", got, local)
	}
	for _, hours := range []int{0, 5, -5} {
		server := time.Now().Add(time.Duration(hours) * time.Hour)
		for range clockMemory {
			c.saw(server.UTC().Format(http.TimeFormat))
			server = server.Add(time.Millisecond)
		}
		if got := c.At(time.Now()); got.After(server.Add(time.Second)) || server.Sub(got) > 3*time.Second {
			t.Errorf("%d hours off: %v, want %v", hours, got, server)
		}
	}
	was := c.At(time.Now())
	c.saw("yesterday")
	if got := c.At(time.Now()); got.Sub(was) > 2*time.Second {
		t.Errorf("%v after no Date header, %v before", got, was)
	}
}
