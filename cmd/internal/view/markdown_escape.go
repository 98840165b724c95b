package view

import (
	"regexp"
	"strings"
)

// mdSpecial are characters that Markdown, or the HTML within it, gives a meaning
// wherever they stand.
var mdSpecial = strings.NewReplacer(
	`\`, `\\`, "`", "\\`", "*", `\*`, "[", `\[`, "]", `\]`, "~", `\~`, "|", `\|`, "#", `\#`, "$", `\$`,
	"&", "&amp;", "<", "&lt;", ">", "&gt;",
	"@", "@<!-- -->", // so that a name notifies nobody
)

// mdUnderscore matches underscores that may begin or end emphasis: those at the
// edge of a word, and several in a row.
var mdUnderscore = regexp.MustCompile(`(^|[^0-9A-Za-z_])_+|_+($|[^0-9A-Za-z_])|__+`)

// mdLineStart matches what would make a list of a line, or a rule or heading.
var mdLineStart = regexp.MustCompile(`^([-+]|[0-9]+[.)])(\s|$)|^[-=]+$`)

// mdText writes a text so that Markdown shows it as it is, on one line.
func mdText(s string) string {
	s = mdSpecial.Replace(clean(s))
	s = mdUnderscore.ReplaceAllStringFunc(s, func(m string) string { return strings.ReplaceAll(m, "_", `\_`) })
	if at := mdLineStart.FindStringSubmatchIndex(s); at != nil {
		mark := max(at[3]-1, 0) // the last character of the mark, or the first of a rule
		s = s[:mark] + `\` + s[mark:]
	}
	return s
}

// mdCode writes a text as code, within as many backticks as it needs.
func mdCode(s string) string {
	s = clean(s)
	if s == "" {
		return ""
	}
	longest, run := 0, 0
	for _, r := range s {
		if run++; r != '`' {
			run = 0
		}
		longest = max(longest, run)
	}
	fence := strings.Repeat("`", longest+1)
	if longest > 0 || strings.HasPrefix(s, " ") && strings.HasSuffix(s, " ") {
		s = " " + s + " "
	}
	return fence + s + fence
}

// mdCell makes something ready for a cell of a table, where a bar would end it
// even within code.
func mdCell(s string) string { return strings.ReplaceAll(s, "|", `\|`) }
