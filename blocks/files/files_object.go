package files

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/blocks/decode"
	"github.com/calico-audit/calico-audit/blocks/decode/parse"
)

// envelope identifies the type of an object.
type envelope struct {
	kind, version string
	items         bool
	metadata      bool
}

// maxListDepth limits the nesting of lists.
const maxListDepth = 8

// object handles one object of the current file.
func (f *fileReader) object(o RawObject) error {
	if o.document != f.document {
		f.document, f.list = o.document, listed{}
	}
	return f.nested(o, 0)
}

func (f *fileReader) nested(o RawObject, depth int) error {
	wrong := func(format string, args ...any) error {
		return &parse.FileError{Document: o.document, Line: o.line, Err: fmt.Errorf(format, args...)}
	}
	if o.listVersion == blocks.APIVersion { // reports of several clusters are such lists
		return f.decode(o, envelope{kind: o.listKind, version: o.listVersion})
	}
	skip := func(err error) error {
		if o.listKind != "" {
			return err
		}
		if f.why == nil {
			f.why = fmt.Errorf("%s: %w", f.current, err)
		}
		f.skipped++
		return nil
	}
	r := f.reader
	r.Reset(o.JSON)
	switch r.Peek() {
	case '{':
	case '"':
		if text := r.String(); said.MatchString(text) || about.MatchString(text) {
			f.message(text)
			return nil
		}
		fallthrough
	default:
		return skip(wrong("not a Kubernetes object, but %s", parse.Clip(o.JSON)))
	}
	var e envelope
	r.Fields(parse.Members{"kind": &e.kind, "apiVersion": &e.version, "items": func() {
		e.items = r.Peek() == '[' || r.Peek() == 'n' // null is an empty list, too
	}, "metadata": func() { e.metadata = true }})
	if kind, ok := strings.CutSuffix(o.listKind, "List"); ok {
		e.kind = cmp.Or(e.kind, kind)
		e.version = cmp.Or(e.version, o.listVersion)
	}
	switch {
	case e.kind == "" && !e.items && (e.version == "" || !e.metadata): // such as a Chart.yaml
		return skip(wrong("not a Kubernetes object: it has no kind"))
	case e.kind == "":
		return wrong("not a Kubernetes object: it has no kind")
	case e.version == "":
		return wrong("not a Kubernetes object: the %s has no apiVersion", e.kind)
	case e.items && strings.HasSuffix(e.kind, "List"):
		if depth == maxListDepth {
			return wrong("lists within lists, more than %d deep", maxListDepth)
		}
		return f.listItems(o, e, depth)
	case e.kind == "List" || f.kinds[e.version+"/"+strings.TrimSuffix(e.kind, "List")] != nil && strings.HasSuffix(e.kind, "List"):
		return wrong("a %s without items; is the file cut off?", e.kind)
	case e.version == blocks.APIVersion && e.kind == infoKind:
		return f.readInfo(o)
	case e.version == blocks.APIVersion && e.kind == endKind:
		return f.readEnd(o)
	case e.version == "v1" && e.kind == "Status": // the API server's answer to a failed request
		var text string
		r.Reset(o.JSON)
		r.Fields(parse.Members{"message": &text})
		f.message(text)
		return nil
	}
	return f.decode(o, e)
}

// listItems handles the objects of a nested list.
func (f *fileReader) listItems(o RawObject, e envelope, depth int) error {
	outer := f.list
	f.list = listed{}
	defer func() { f.list = outer }()
	r := parse.New(o.JSON)
	var failed error
	r.Fields(parse.Members{"items": func() {
		r.Array(func(int) {
			item := RawObject{JSON: r.Raw(), document: o.document, line: o.line, listKind: e.kind, listVersion: e.version}
			if failed == nil {
				failed = f.nested(item, depth+1)
			}
		})
	}})
	if failed != nil {
		return failed
	}
	inner := f.list
	for _, k := range inner.kinds {
		outer.add(k)
	}
	outer.others = outer.others || inner.others
	return f.endList(o)
}

// decode handles an object that is not a list.
func (f *fileReader) decode(o RawObject, e envelope) error {
	k := f.kinds[e.version+"/"+e.kind]
	if e.version == blocks.APIVersion {
		f.ours = cmp.Or(f.ours, f.current+" is of kind "+e.kind)
	}
	if k == nil {
		f.ignored[e.kind+" "+e.version]++
		f.list.others = true
		return nil
	}
	out := f.group(e.version).of(k)
	f.decoder.Out, f.decoder.Native, f.decoder.Source = out, e.version == decode.GroupNative, f.current
	f.decoder.Dump = !f.info.resources[k.Resource]
	if p := f.parts[out]; len(p) == 0 || p[len(p)-1].file != f.current {
		f.parts[out] = append(p, part{out.Len(), f.current})
	}
	object := decode.Object{Text: o.JSON}
	_ = f.decoder.One(object) // its syntax is already checked
	record := f.opts.Record.of(k.Resource)
	record.Object(e.version, object)
	record.flush()
	if !slices.Contains(decode.OnDemand, k) {
		f.objects++
	}
	f.list.add(out)
	f.saved.count(k.Resource)
	if o.unended && !f.saved.open {
		f.warn("%s ends within a line: is it cut off?", f.current)
	}
	return nil
}
