package testenv

import (
	"hash/fnv"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"
)

const (
	// EnvEveryCase is the environment variable that makes tests try every case instead of
	// a sample. Any value counts.
	EnvEveryCase = "CALICO_AUDIT_EVERY_CASE"
	// EnvSeed is the environment variable with the seed of random choices, a decimal
	// number.
	EnvSeed = "CALICO_AUDIT_SEED"
)

// EveryCase reports whether tests must try every case instead of a sample.
func EveryCase() bool { return os.Getenv(EnvEveryCase) != "" }

// Seed returns the seed of the test's random choices: EnvSeed, or else today's date in
// UTC, such as 20260131. It logs the seed so that a failed test can be repeated.
func Seed(t testing.TB) uint64 {
	t.Helper()
	now := time.Now().UTC()
	seed := uint64(now.Year()*10000 + int(now.Month())*100 + now.Day())
	if text := os.Getenv(EnvSeed); text != "" {
		var err error
		if seed, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatalf("%s: %v", EnvSeed, err)
		}
	}
	t.Logf("%s=%d", EnvSeed, seed)
	return seed
}

// Rand returns a random source that depends only on the seed and the test's name.
func Rand(t testing.TB) *rand.Rand {
	t.Helper()
	name := fnv.New64a()
	name.Write([]byte(t.Name()))
	return rand.New(rand.NewPCG(Seed(t), name.Sum64()))
}

// Sample returns n of the cases in their original order, chosen by [Rand]. It returns all
// cases if there are at most n, or if [EveryCase] is true.
func Sample[T any](t testing.TB, n int, cases []T) []T {
	t.Helper()
	if len(cases) <= n || EveryCase() {
		return cases
	}
	chosen := Rand(t).Perm(len(cases))[:n]
	slices.Sort(chosen)
	sample := make([]T, n)
	for i, c := range chosen {
		sample[i] = cases[c]
	}
	return sample
}
