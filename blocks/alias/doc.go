// Package alias anonymizes names and addresses, and preserves the relations that a report depends
// on:
//
//   - Equal names get equal replacements everywhere, different names different ones.
//   - Replacements sort like the names, so a report keeps its order.
//   - Names that differ only in case get replacements that differ only in case, because Calico
//     converts some names to lower case and others not.
//   - Selectors select the same objects.
//   - Addresses of one subnet stay in one subnet.
//
// The caller determines the kind of each name ([Kind]).
package alias
