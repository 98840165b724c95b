// Package view writes reports, explanations, plans and check documentation for people and
// programs.
//
// Each type that commands print has its own [Formats], defined in one file. Formats for
// programs (json, yaml, jsonpath, custom-columns, name) write the value as it is, with all
// digits of counts. Formats for people (table, wide, map) use a printer, which wraps text
// to the terminal's width, uses colour only for severities, and makes control characters in
// names visible; the output is complete without colour. Tickets are rendered from the
// templates in markdown.tmpl. Package page writes HTML.
package view
