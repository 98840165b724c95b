package metrics

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io"

	"github.com/calico-audit/calico-audit/blocks"
)

// writeView writes a host view as JSON. A node may have very many routes, and the
// agent little memory: they are written one by one, into the place that they have
// in the rest of the document.
func writeView(w io.Writer, v *blocks.HostView) error {
	rest := *v
	rest.Routes = []blocks.HostRoute{}
	text, err := json.Marshal(rest)
	if err != nil {
		return err
	}
	// Within strings the quotes would be escaped, so that this is the field.
	const field = `"routes":[`
	before, after, ok := bytes.Cut(text, []byte(field))
	if !ok {
		return errors.New("a host view without routes")
	}
	out := bufio.NewWriter(w)
	_, _ = out.Write(before)
	_, _ = out.WriteString(field)
	each := json.NewEncoder(out)
	for i := range v.Routes {
		if i > 0 {
			_ = out.WriteByte(',')
		}
		if err := each.Encode(&v.Routes[i]); err != nil {
			return err
		}
	}
	_, _ = out.Write(after)
	_ = out.WriteByte('\n')
	return out.Flush() // and any error on the way
}
