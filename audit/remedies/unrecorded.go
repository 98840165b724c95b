package remedies

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/calico-audit/calico-audit/audit/phrase"
	"github.com/calico-audit/calico-audit/audit/state"
	"github.com/calico-audit/calico-audit/audit/state/recordable"
)

// RecordRemedies returns the remedies for an address that a live pod uses and no block records.
func (st *Remedies) RecordRemedies(a netip.Addr) []Remedy {
	all := st.recordables()
	i, found := slices.BinarySearchFunc(all, a, func(u *recordable.Address, a netip.Addr) int { return u.Addr.Compare(a) })
	if !found {
		return nil
	}
	return []Remedy{recordRemedy(all[i])}
}

// recordRemedy records an address. If its handle is unknown, its pod has to restart, which gives it
// another address.
func recordRemedy(u *recordable.Address) Remedy {
	if u.Code == state.RetainUnpinned && u.Users[0].Pod != nil {
		return restartUnpinned([]string{u.Users[0].Pod.FullName()})
	}
	return RecordAddresses.Unless(u.Bar)
}

func restartUnpinned(pods []string) Remedy {
	return Restart(fmt.Sprintf("restart %s %s, which %s no annotation cni.projectcalico.org/containerID: without it no plan can record %s",
		phrase.One(len(pods), "pod", "pods"), phrase.Some(pods), phrase.One(len(pods), "has", "have"), phrase.One(len(pods), "its address", "their addresses")),
		phrase.One(len(pods), "it gets an address that a block records", "they get addresses that blocks record"))
}

// recordRemedies returns the remedies for all such addresses: a plan for those that it can record,
// and manual steps for the rest.
func (st *Remedies) recordRemedies() (out []Remedy) {
	var restart []string
	var first state.Bar
	recorded, of := 0, 0
	for _, u := range st.recordables() {
		if u.OtherIPAM != "" {
			continue
		}
		of++
		switch w := u.Users[0].Pod; {
		case u.Code == "":
			recorded++
		case u.Code == state.RetainUnpinned && w != nil:
			if !slices.Contains(restart, w.FullName()) {
				restart = append(restart, w.FullName())
			}
		case first.Code == "":
			first = u.Bar
		}
	}
	if r := RecordAddresses; recorded > 0 {
		if r.Yield = (&Yield{Addresses: recorded}); recorded < of {
			r.Effect = fmt.Sprintf("%d of %s recorded; repair says why the others stay", recorded, phrase.PluralVerb(of, "address", "is", "are"))
		}
		out = append(out, r)
	}
	if len(restart) > 0 {
		out = append(out, restartUnpinned(restart))
	}
	if len(out) == 0 {
		out = append(out, RecordAddresses.Unless(first))
	}
	return out
}
