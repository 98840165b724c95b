package files

import (
	"bufio"
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/blocks/decode"
)

// Dumps by scripts hold more than objects: kubectl's error messages ("kubectl get pods -o yaml &>
// pods.yaml"), and the logs that "kubectl cluster-info dump" prints between the lists.
var (
	// said matches a message of kubectl at the start of a line.
	said = regexp.MustCompile(`^(Error from server|[Ee]rror: |No resources found|Unable to connect to the server|The connection to the server|Warning: )`)
	// logStart and logEnd enclose the log of a container.
	logStart, logEnd = []byte("==== START logs for container "), []byte("==== END logs for container ")

	// about matches the plural of the kind in a message, and the API group behind it.
	about = regexp.MustCompile(`resource "?([a-z-]+)"? in API group "([a-z0-9.-]*)"|resource type "([a-z-]+)\.?([a-z0-9.-]*)"|\(get ([a-z-]+)\.?([a-z0-9.-]*)\)|([a-z-]+)\.?([a-z0-9.-]*) is forbidden`)
	// notServed matches a message about a kind that the API server does not have.
	notServed = regexp.MustCompile(`doesn't have a resource type|could not find the requested resource|no matches for kind`)
)

// message keeps a message about a kind that an audit reads, and counts any other. The kind is in
// the message, or in the name of the file.
func (f *fileReader) message(text string) {
	if strings.HasPrefix(text, "Warning: ") {
		return
	}
	plural, _, _ := strings.Cut(path.Base(filepath.ToSlash(f.current)), ".")
	group := ""
	if m := about.FindStringSubmatch(text); m != nil {
		plural, group = cmp.Or(m[1], m[3], m[5], m[7]), cmp.Or(m[2], m[4], m[6], m[8])
	}
	if k := kindOfPlural(plural, group); k != nil && !strings.HasPrefix(text, "No resources found") {
		f.messages = append(f.messages, message{k.Resource, f.current, text})
		return
	}
	f.skipped++
}

// kindOfPlural returns the kind with a plural; nil if an audit does not read it. For kinds that are
// not Kubernetes' own, an empty API group means unknown.
func kindOfPlural(plural, group string) *decode.Kind {
	for _, k := range decode.Kinds {
		if plural != k.Plural(decode.GroupCRD) && plural != k.Plural(decode.GroupNative) {
			continue
		}
		own, _, _ := strings.Cut(cmp.Or(k.Foreign, "projectcalico.org"), "/")
		if group == "" || !k.Core && strings.Contains(group, own) {
			return k
		}
	}
	return nil
}

// saidGaps returns a gap for each kind that a message is about, with its first message. "Not
// served" is not a gap if the files hold objects of the kind, from the other API group.
func (f *fileReader) saidGaps(read []*decode.Objects) (gaps []blocks.Gap) {
	for _, m := range f.messages {
		seen := slices.ContainsFunc(read, func(o *decode.Objects) bool { return o.Kind.Resource == m.resource && f.seen(o) })
		known := slices.ContainsFunc(gaps, func(g blocks.Gap) bool { return g.Resource == m.resource })
		if !known && (!seen || !notServed.MatchString(m.text)) {
			gaps = append(gaps, blocks.Gap{Resource: m.resource, Reason: fmt.Sprintf("%s says %q", m.file, m.text)})
		}
	}
	return gaps
}

// lines reads a text without its messages and logs. It keeps their line breaks, so that line
// numbers stay correct.
type lines struct {
	in *bufio.Reader
	// message is called with each message.
	message func(string)
	// found is true once there was a message or a log.
	found bool

	rest              []byte // of the current line
	inLine, drop, log bool
	err               error
}

func (l *lines) Read(p []byte) (n int, err error) {
	for n == 0 && len(p) > 0 {
		if len(l.rest) == 0 {
			if l.err != nil {
				return 0, l.err
			}
			l.next()
		}
		n = copy(p, l.rest)
		l.rest = l.rest[n:]
	}
	return n, nil
}

// next reads a line, or the next part of one that is longer than the buffer.
func (l *lines) next() {
	line, err := l.in.ReadSlice('\n')
	if !l.inLine {
		l.drop = l.log
		switch {
		case bytes.HasPrefix(line, logStart):
			l.log, l.drop = true, true
		case bytes.HasPrefix(line, logEnd):
			l.log, l.drop = false, true
		case !l.drop && len(line) > 0 && bytes.IndexByte([]byte("EeNUTW"), line[0]) >= 0 && said.Match(line):
			l.drop = true
			l.message(strings.TrimSpace(string(line)))
		}
		l.found = l.found || l.drop
	}
	ended := bytes.HasSuffix(line, []byte("\n"))
	if l.inLine = !ended; l.drop {
		line = line[:0]
		if ended {
			line = []byte("\n")
		}
	}
	if l.rest = line; !errors.Is(err, bufio.ErrBufferFull) {
		l.err = err
	}
}
