package decode

import (
	"github.com/calico-audit/calico-audit/blocks/alias"
	"github.com/calico-audit/calico-audit/blocks/decode/keep"
	"github.com/calico-audit/calico-audit/blocks/decode/parse"
)

// An Object is an object as read: JSON, or a protobuf message.
type Object struct {
	Text []byte
	Wire bool
}

// AppendSaved appends the saved form of an object of an API version.
func (k *Kind) AppendSaved(out []byte, version string, o Object, n *alias.Aliases) []byte {
	var r *parse.Reader
	if o.Wire {
		r = new(parse.Reader)
		r.ResetWire(o.Text, k.keeps)
	} else {
		r = parse.New(o.Text)
	}
	out = keep.AppendText(append(out, `{"apiVersion":`...), version)
	out = keep.AppendText(append(out, `,"kind":`...), k.Name(version))
	members := len(out)
	if out = keep.Append(out, r, k.keeps, n); len(out) > members+2 && out[members] == '{' {
		out[members] = ','
		return out
	}
	return append(out[:members], '}')
}

// Claimant returns the field spec.node of an affinity.
func Claimant(object []byte) (node string) {
	r := parse.New(object)
	r.Fields(parse.Members{"spec": func() { r.Fields(parse.Members{"node": &node}) }})
	return node
}
