package testenv

import (
	"slices"
	"testing"
)

func TestSample(t *testing.T) {
	t.Setenv(EnvEveryCase, "")
	cases := []int{1, 2, 3, 4, 5, 6, 7, 8, 9}
	seen := map[int]bool{}
	for _, seed := range []string{"1", "2", "3", "4", "5", "6", "7", "8", "9", "10"} {
		t.Setenv(EnvSeed, seed)
		sample := Sample(t, 3, cases)
		if len(sample) != 3 || !slices.IsSorted(sample) || len(slices.Compact(slices.Clone(sample))) != 3 {
			t.Errorf("the sample of seed %s is %v, not 3 different cases in order", seed, sample)
		}
		if again := Sample(t, 3, cases); !slices.Equal(again, sample) {
			t.Errorf("seed %s chooses %v, then %v", seed, sample, again)
		}
		for _, c := range sample {
			seen[c] = true
		}
	}
	if len(seen) < 8 {
		t.Errorf("ten seeds choose only %d of %d cases", len(seen), len(cases))
	}
	if sample := Sample(t, 9, cases); !slices.Equal(sample, cases) {
		t.Errorf("a sample as large as the cases is %v", sample)
	}
	t.Setenv(EnvEveryCase, "1")
	if sample := Sample(t, 3, cases); !slices.Equal(sample, cases) {
		t.Errorf("with %s, the sample is %v", EnvEveryCase, sample)
	}
}
