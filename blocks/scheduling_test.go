package blocks

import (
	"math"
	"testing"
)

// TestPodTerm: a term selects pods of its namespaces by label, and all of them if its selector cannot
// be parsed.
func TestPodTerm(t *testing.T) {
	web := &Workload{Namespace: "shop", Labels: map[string]string{"app": "web"}}
	for name, c := range map[string]struct {
		term PodTerm
		from string
		want bool
	}{
		"its own namespace":  {PodTerm{Selector: "app=web"}, "shop", true},
		"another namespace":  {PodTerm{Selector: "app=web"}, "red", false},
		"named":              {PodTerm{Selector: "app=web", Namespaces: []string{"red", "shop"}}, "red", true},
		"others named":       {PodTerm{Selector: "app=web", Namespaces: []string{"red"}}, "shop", false},
		"any":                {PodTerm{Selector: "app=web", AnyNamespace: true}, "red", true},
		"other labels":       {PodTerm{Selector: "app=db"}, "shop", false},
		"a selector of all":  {PodTerm{Selector: "<none>"}, "shop", true},
		"an invalid one":     {PodTerm{Selector: "<error>"}, "shop", true},
		"invalid, elsewhere": {PodTerm{Selector: "<error>"}, "red", false},
	} {
		if got := c.term.Matcher(c.from)(web); got != c.want {
			t.Errorf("%s: %t, not %t", name, got, c.want)
		}
	}
}

// TestQuantities: no sum or difference overflows into room that does not exist.
func TestQuantities(t *testing.T) {
	r := Quantities{"cpu": 2000}
	if r.Subtract(Quantities{"cpu": 1500}); !r.Holds(Quantities{"cpu": 500}) || r.Holds(Quantities{"cpu": 501}) || r.Holds(Quantities{"gpu": 1}) || !r.Holds(nil) {
		t.Errorf("%v are left of 2000 after 1500", r)
	}
	for range 3 {
		r.Subtract(Quantities{"cpu": math.MaxInt64, "gpu": math.MaxInt64})
	}
	if more := r.Plus(Quantities{"cpu": 1}); r.Holds(Quantities{"cpu": 1}) || r.Holds(Quantities{"gpu": 1}) || more.Holds(Quantities{"cpu": 1}) || !more.Plus(Quantities{"cpu": 1}).Holds(Quantities{"cpu": 1}) {
		t.Errorf("%v are left after more than there is, and %v with one more", r, more)
	}
}
