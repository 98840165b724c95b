// Package hostviews reads host views, the state of nodes' kernels, from files ([Read]) and
// from agents' responses ([OfAgent]). A view keeps all namespaces, and the routes and
// lookups that concern a snapshot's pools and blocks. Malformed parts are gaps.
package hostviews

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/blocks/decode/parse"
	"github.com/calico-audit/calico-audit/blocks/files"
)

// maxView limits the uncompressed size of a host view file in bytes.
const maxView = 64 << 20

// maxYAML is the limit for YAML, whose parser needs some fifty times the memory of the
// text.
const maxYAML = 4 << 20

// Options are options for reading host views.
type Options struct {
	// At is when route listings were taken, because they carry no time. If it is zero, the
	// snapshot's time is used for snapshots of files; for a running cluster, listings are
	// then gaps.
	At time.Time
	// Until is when reading ended, by the snapshot's clock. Views newer by more than a
	// minute lie in the future. Zero means the time of the snapshot.
	Until time.Time
}

// Read reads host views for a snapshot from files: the output of "calico-audit agent --once
// -o json", or of "ip -j route show table all" in files named NODE.json. A path is a file
// or a directory, as for [files.ReadFiles]. Of the routes and lookups, only those that
// concern the snapshot's pools and blocks are kept.
//
// Malformed parts are gaps with file and field, and so are files of more than 64 MiB. Read
// returns an error for mistakes of the caller: an unreadable path, or a named file with
// broken JSON, YAML or gzip. Broken files within a directory are gaps.
func Read(s *blocks.Snapshot, paths []string, opts Options) (blocks.HostReading, error) {
	g := newViewReader(s, opts)
	for _, path := range paths {
		found, err := files.Expand(path)
		if err != nil {
			return blocks.HostReading{}, fmt.Errorf("reading host views: %w", err)
		}
		named := len(found) == 1 && found[0] == path
		for _, file := range found {
			err := g.file(file)
			var broken *brokenView
			switch {
			case err == nil:
			case errors.As(err, &broken) && !named:
				g.gap("", file, broken.err.Error())
			default:
				return blocks.HostReading{}, fmt.Errorf("reading host view %s: %w", file, err)
			}
		}
	}
	return blocks.JoinHostReadings(blocks.HostReading{Views: g.views, Gaps: g.gaps, Until: g.opts.Until}), nil
}

// OfAgent returns a function that reads a host view from an agent's response, as [Read]
// does from files. Views are authenticated only if an agent certainly sent them: the API
// server forwards responses without authenticating the agent.
func OfAgent(s *blocks.Snapshot, opts Options) func(source, node string, text []byte, authenticated bool) blocks.HostReading {
	g := newViewReader(s, opts)
	return func(source, node string, text []byte, authenticated bool) blocks.HostReading {
		own := *g
		own.agentView(source, node, text, authenticated)
		return blocks.HostReading{Views: own.views, Gaps: own.gaps, Until: own.opts.Until}
	}
}

// brokenView is the error for a file with broken JSON, YAML or gzip.
type brokenView struct{ err error }

func (e *brokenView) Error() string { return e.err.Error() }
func (e *brokenView) Unwrap() error { return e.err }

// file reads the views of one file.
func (g *viewReader) file(path string) error {
	text, tooLarge, err := readBounded(path)
	if err != nil {
		return err
	}
	if tooLarge != "" {
		g.gap(nodeOfFile(path), path, tooLarge)
		return nil
	}
	text = bytes.TrimLeft(bytes.TrimPrefix(text, []byte("\xef\xbb\xbf")), " \t\r\n")
	switch {
	case len(text) == 0:
		return &brokenView{errors.New("it is empty")}
	case text[0] == '[':
		if err := parse.CheckSyntax(text, 1, 1); err != nil {
			return &brokenView{err}
		}
		g.listing(path, text)
		return nil
	case text[0] != '{' && len(text) > maxYAML:
		g.gap(nodeOfFile(path), path, fmt.Sprintf("it has %d bytes of YAML; up to %d MiB are read, and of JSON %d MiB", len(text), maxYAML>>20, maxView>>20))
		return nil
	}
	views, gaps := len(g.views), len(g.gaps)
	found, err := files.Split(bytes.NewReader(text), func(o files.RawObject) error {
		g.object(path, bytes.Clone(o.JSON))
		return nil
	}, func(o files.RawObject) error {
		var kind string
		parse.New(o.JSON).Fields(parse.Members{"kind": &kind})
		if kind != "" && !strings.HasSuffix(kind, "List") {
			g.gap(nodeOfFile(path), path, fmt.Sprintf("it is of kind %q and has a list of items, as only a List has", parse.Clip(kind)))
		}
		return nil
	})
	switch {
	case err != nil:
		g.views, g.gaps = g.views[:views], g.gaps[:gaps] // drop all of a broken file
		return &brokenView{err}
	case found == 0:
		return &brokenView{errors.New("it holds no object")}
	}
	return nil
}

// readBounded reads a file and decompresses gzip. If it is larger than [maxView], tooLarge
// describes its size.
func readBounded(path string) (text []byte, tooLarge string, err error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, "", err
	}
	defer file.Close()
	info, err := file.Stat()
	if err == nil && info.IsDir() {
		err = errors.New("it is a directory")
	}
	if err != nil {
		return nil, "", err
	}
	unpack := func(to io.Writer) (size int64, packed bool, err error) {
		in, err := files.Decompress(file)
		if err != nil {
			return 0, true, &brokenView{err}
		}
		_, plain := in.(*bufio.Reader)
		size, err = io.Copy(to, io.LimitReader(in, maxView+1))
		if err != nil && !plain && !errors.As(err, new(*os.PathError)) {
			err = &brokenView{fmt.Errorf("reading gzip: %w", err)}
		}
		return size, !plain, err
	}
	const limit = "the file is too large: it has %s, and the limit is %d MiB"
	var buf bytes.Buffer
	if info.Mode().IsRegular() { // a pipe can only be read once
		size, packed, err := unpack(io.Discard)
		have := "more than that, unpacked"
		if !packed {
			have = fmt.Sprintf("%d MiB", info.Size()>>20)
		}
		if err != nil || size > maxView {
			return nil, fmt.Sprintf(limit, have, maxView>>20), err
		}
		if _, err := file.Seek(0, io.SeekStart); err != nil {
			return nil, "", err
		}
		buf.Grow(int(size) + bytes.MinRead)
	}
	size, _, err := unpack(&buf)
	if err != nil || size > maxView {
		return nil, fmt.Sprintf(limit, "more than that", maxView>>20), err
	}
	return buf.Bytes(), "", nil
}

// nodeOfFile returns the node in a file's name, as in NODE.json or NODE.json.gz.
func nodeOfFile(path string) string {
	name := filepath.Base(path)
	for _, end := range []string{".gz", ".json", ".yaml", ".yml"} {
		if len(name) > len(end) && strings.EqualFold(name[len(name)-len(end):], end) {
			name = name[:len(name)-len(end)]
		}
	}
	return name
}
