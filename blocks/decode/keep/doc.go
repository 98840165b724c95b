// Package keep reduces objects to what a saved snapshot keeps, and anonymizes names.
//
// The [parse.Mask] of a kind selects the fields. Each value has a [Class], its meaning, which
// determines how it is anonymized.
package keep
