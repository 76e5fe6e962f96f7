package replay

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"nicemu/replay/report"
)

// NothingError says that not one frame was replayed, and what became of the packets instead.
type NothingError struct {
	Captures []FileStats
	Refused  map[string]uint64 // frames that were made of them and not taken, by reason
}

func (e *NothingError) Error() string {
	var why []string
	for i := range e.Captures {
		f := &e.Captures[i]
		text := f.File + ": " + report.Count(f.Packets, "packet") + " read"
		if odd := f.oddities(); odd != "" {
			text += ", " + odd
		}
		why = append(why, text)
	}
	for _, reason := range slices.Sorted(maps.Keys(e.Refused)) {
		why = append(why, fmt.Sprintf("%s refused: %s", report.Count(e.Refused[reason], "frame"), reason))
	}
	return "nothing was replayed: " + strings.Join(why, "; ")
}

// nothing is a *NothingError if not one frame was given to the stack and the captures are whole.
func (r *run) nothing() error {
	refused := r.book.dropped[tooLong].Frames
	if r.feed.err != nil || r.stuck || r.book.offers > refused {
		return nil
	}
	e := &NothingError{Captures: r.feed.stream.Files()}
	if refused > 0 {
		e.Refused = map[string]uint64{tooLong: refused}
	}
	return e
}
