// Package document reads and writes the documents on the command line: reports and plans,
// possibly compressed, from files or standard input. Its errors are caused by the user,
// such as a missing file or one of another kind.
package document

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/calico-audit/calico-audit/audit"
	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/blocks/files"
	"github.com/calico-audit/calico-audit/cmd/internal/view"
	"github.com/calico-audit/calico-audit/cmd/internal/view/page"
)

// headSize is how much of a file is read to identify it.
const headSize = 1 << 20

// Open opens a file for reading, or standard input for "-". It decompresses compressed
// files. head is the beginning of the text.
func Open(path string, stdin io.Reader) (text io.Reader, head []byte, closer func(), err error) {
	in, closer := stdin, func() {}
	if path != "-" {
		file, err := os.Open(path)
		if err != nil {
			return nil, nil, nil, err
		}
		in, closer = file, func() { _ = file.Close() }
	}
	raw := bufio.NewReader(in)
	text = raw
	if magic, _ := raw.Peek(2); string(magic) == "\x1f\x8b" {
		packed, err := gzip.NewReader(raw)
		if err != nil {
			closer()
			return nil, nil, nil, err
		}
		text = packed
	}
	buffered := bufio.NewReaderSize(text, headSize)
	head, err = buffered.Peek(headSize)
	if err != nil && err != io.EOF {
		closer()
		return nil, nil, nil, err
	}
	return buffered, head, closer, nil
}

// Identity returns the apiVersion and kind of the first object of a text, if they are in
// its head.
func Identity(head []byte) (version, kind string) {
	head = bytes.TrimLeft(bytes.TrimPrefix(head, []byte("\ufeff")), " \t\r\n")
	if len(head) > 0 && head[0] == '{' {
		return identityJSON(head)
	}
	for i, line := range strings.Split(string(head), "\n") {
		if i > 0 && strings.HasPrefix(line, "---") {
			break
		}
		key, value, _ := strings.Cut(strings.TrimSuffix(line, "\r"), ":")
		value, _, _ = strings.Cut(value, " #")
		value = strings.Trim(strings.TrimSpace(value), `"'`)
		switch key {
		case "apiVersion":
			version = value
		case "kind":
			kind = value
		}
	}
	return version, kind
}

// identityJSON reads the members of an object until it has found both, or the text ends.
func identityJSON(head []byte) (version, kind string) {
	d := json.NewDecoder(bytes.NewReader(head))
	if _, err := d.Token(); err != nil {
		return "", ""
	}
	for d.More() && (version == "" || kind == "") {
		key, err := d.Token()
		if err != nil {
			break
		}
		var value json.RawMessage
		if err := d.Decode(&value); err != nil {
			break
		}
		switch key {
		case "apiVersion":
			_ = json.Unmarshal(value, &version)
		case "kind":
			_ = json.Unmarshal(value, &kind)
		}
	}
	return version, kind
}

// IsOurs reports whether an object is a document that a command printed, rather than part
// of a snapshot.
func IsOurs(version, kind string) bool {
	return version == audit.APIVersion && !strings.HasPrefix(kind, "Snapshot")
}

// IsReport reports whether an object is a report. If its kind is not in the head, as in a
// document with sorted keys, the apiVersion decides.
func IsReport(version, kind string) bool {
	return kind == audit.ReportKind || kind == "" && version == audit.APIVersion
}

// ReadReport reads a report in JSON, YAML or HTML. Errors contain the path.
func ReadReport(path string, stdin io.Reader) (*audit.Report, error) {
	text, head, done, err := Open(path, stdin)
	if err != nil {
		return nil, fmt.Errorf("reading a report: %w", err)
	}
	defer done()
	return ReportOf(path, head, text)
}

// ReportOf is [ReadReport] for an open text with the given head.
func ReportOf(path string, head []byte, text io.Reader) (*audit.Report, error) {
	if version, kind := Identity(head); !IsReport(version, kind) && !page.Is(head) {
		what := "not an " + audit.ReportKind
		if kind != "" {
			what = "kind " + kind + ", want " + audit.ReportKind
		}
		return nil, fmt.Errorf("%s is %s: \"report -o json\", \"-o yaml\" and \"-o html\" write reports", path, what)
	}
	return DecodeReport(path, head, text)
}

// DecodeReport decodes a report from a text with the given head.
func DecodeReport(path string, head []byte, text io.Reader) (*audit.Report, error) {
	r := new(audit.Report)
	if page.Is(head) {
		raw, err := io.ReadAll(text)
		if err == nil {
			r, _, err = page.Read(raw)
		}
		if err != nil {
			return nil, fmt.Errorf("reading %s: %w", path, err)
		}
	} else if _, err := Decode("report", path, text, r); err != nil {
		return nil, err
	}
	if r.APIVersion != audit.APIVersion || r.Kind != audit.ReportKind {
		return nil, fmt.Errorf("reading %s: it is kind %q of %q, want %s of %s", path, r.Kind, r.APIVersion, audit.ReportKind, audit.APIVersion)
	}
	return r, nil
}

// DecodeFleet decodes the reports of several clusters.
func DecodeFleet(path string, text io.Reader) (*view.FleetReport, error) {
	f := new(view.FleetReport)
	if _, err := Decode("report", path, text, f); err != nil {
		return nil, err
	}
	for i := range f.Items {
		if x := &f.Items[i]; x.Error == "" && (x.Of.Report == nil || x.Of.Kind != audit.ReportKind) {
			return nil, fmt.Errorf("reading %s: items[%d] has neither a report nor an error", path, i)
		}
	}
	if len(f.Items) == 0 {
		return nil, fmt.Errorf("reading %s: it contains no clusters (items is empty)", path)
	}
	if f.APIVersion != audit.APIVersion {
		return nil, fmt.Errorf("reading %s: it is kind %q of %q, want %q", path, f.Kind, f.APIVersion, audit.APIVersion)
	}
	return f, nil
}

// Decode decodes YAML or JSON into a value, and returns it as JSON. Errors contain name,
// and what as the expected type.
func Decode(what, name string, text io.Reader, into any) ([]byte, error) {
	raw, err := io.ReadAll(text)
	if err == nil {
		raw, err = files.DocumentJSON(bytes.TrimPrefix(raw, []byte("\ufeff")))
	}
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", name, err)
	}
	if err := json.Unmarshal(raw, into); err != nil {
		return nil, fmt.Errorf("reading %s: it is not a %s: %w", name, what, blocks.FieldError(err))
	}
	return raw, nil
}
