package repair

import "testing"

// TestConsentedBy: who goes on with a plan gives its consents again, and may ask for a
// second look that it was not made with.
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
