package migrate

import (
	"fmt"
	"strings"
	"time"

	"github.com/prometheus/common/model"
)

// These values replace Grafana's variables while an expression is parsed and rewritten. They do not occur in real
// queries.
const (
	strangeDuration = 77*time.Hour + 7*time.Minute + 7*time.Second
	strangeNumber   = 0.777_1
)

// rateInterval replaces $__rate_interval.
const rateInterval = strangeDuration + 999*time.Millisecond

// withoutVariables replaces variables outside strings by texts that the parser accepts. It returns a function that
// restores the variables.
func withoutVariables(text string) (plain string, restore func(string) string) {
	back := []string{model.Duration(rateInterval).String(), "$__rate_interval"}
	var out strings.Builder
	quote := byte(0)
	for i := 0; i < len(text); i++ {
		c := text[i]
		switch {
		case quote != 0:
			if c == '\\' && quote != '`' && i+1 < len(text) {
				out.WriteByte(c)
				i++
				c = text[i]
			} else if c == quote {
				quote = 0
			}
		case c == '"' || c == '\'' || c == '`':
			quote = c
		case c == '$':
			at := variable.FindStringIndex(text[i:])
			if at == nil || at[0] != 0 {
				break
			}
			name := text[i : i+at[1]]
			before := strings.TrimRight(out.String(), " \t\n")
			var stands string
			if strings.HasSuffix(before, "[") || strings.HasSuffix(before, ":") || strings.HasSuffix(before, "offset") {
				stands = model.Duration(strangeDuration + time.Duration(len(back)+1)*time.Millisecond).String()
			} else {
				stands = fmt.Sprint(strangeNumber + float64(len(back)+1)/1e6)
			}
			back = append(back, stands, name)
			out.WriteString(stands)
			i += at[1] - 1
			continue
		}
		out.WriteByte(c)
	}
	return out.String(), strings.NewReplacer(back...).Replace
}
