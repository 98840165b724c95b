package decode

import (
	"github.com/calico-audit/calico-audit/blocks"
	"github.com/calico-audit/calico-audit/blocks/decode/keep"
	"github.com/calico-audit/calico-audit/blocks/decode/parse"
)

// migrations are read in the API version that v3.32 and newer releases serve.
var migrations = describe(Kind{
	Resource: blocks.Migrations, Names: []string{"DatastoreMigration"}, Foreign: "migration.projectcalico.org/v1beta1", Optional: true,
	keeps: parse.Object("", 0, keep.Meta(keep.Word, true), parse.Object("status", 0, parse.Value("phase", 0, keep.Word))),
}, descriptor[blocks.Migration]{
	json: (*Decoder).migration,
	in:   func(s *blocks.Snapshot) *[]blocks.Migration { return &s.Migrations },
})

func (d *Decoder) migration(r *parse.Reader, m *blocks.Migration) bool {
	d.object(r, &m.Meta, metaHooks{}, nil, r.Known(parse.Members{"phase": &m.Phase}))
	return d.whole(r, &m.Meta, "")
}
