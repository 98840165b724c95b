package repair

import "testing"

// TestConsentedBy: a continued plan keeps only the consents that are given again. Observing twice
// may be added, but not removed.
func TestConsentedBy(t *testing.T) {
	plan := Request{EmptyBlocks: true, LastBlocks: true}
	got := plan.ConsentedBy(&Request{ObserveTwice: true, EvictSingletons: true})
	if !got.ObserveTwice || got.LastBlocks || got.EvictSingletons || !got.EmptyBlocks {
		t.Errorf("got %+v", got)
	}
	plan.ObserveTwice = true
	if !plan.ConsentedBy(&Request{}).ObserveTwice {
		t.Error("the second look is left out")
	}
}
