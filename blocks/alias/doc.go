// Package alias gives names and addresses replacements that tell nothing of their owner,
// and keep what a report depends on.
//
// Equal names get equal replacements wherever they stand, different names
// different ones, and replacements sort as the names did: a report lists the same
// things in the same order. Names that differ in upper and lower case alone get
// replacements that do, because Calico lowers the case of some names and not of
// others. Selectors select the same as before, and addresses that lie in one subnet go on
// doing so. What a text is a name of is for the caller to say ([Kind]).
package alias
