package format

import (
	"bytes"
	"fmt"
	"strings"

	"github.com/pelletier/go-toml/v2/unstable"
)

// source is the text of a scenario file and where each key stands in it.
type source struct {
	name    string
	data    []byte
	offsets map[string]int // path → offset of the key, table header or array element
}

// origin says where a value came from when it is not from the file's own key:
// a place in [sweep], or an assignment.
type origin struct {
	offset int
	set    string
}

// Limits on what a file may hold; far above any sensible scenario.
const (
	MaxBytes = 64 << 10
	maxDepth = 16
)

// join extends a path by a key, quoted where TOML would need it.
func join(path, key string) string {
	if !isBareKey(key) {
		key = fmt.Sprintf("%q", key)
	}
	if path == "" {
		return key
	}
	return path + "." + key
}

// element extends a path by an array index.
func element(path string, i int) string { return fmt.Sprintf("%s[%d]", path, i) }

func isBareKey(s string) bool {
	for _, c := range s {
		if !('a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '_' || c == '-') {
			return false
		}
	}
	return s != ""
}

// locate walks the document, which go-toml has already found well-formed, and
// notes the place of everything a message may point at.
func (s *source) locate() error {
	w := walker{source: s, arrays: map[string]int{}}
	w.parser.Reset(s.data)
	table := ""
	for w.parser.NextExpression() {
		e := w.parser.Expression()
		switch e.Kind {
		case unstable.Table, unstable.ArrayTable:
			table = w.header(e)
		case unstable.KeyValue:
			w.keyValue(table, e, 0)
		}
		if w.err != nil {
			return w.err
		}
	}
	return w.parser.Error()
}

// walker is the state of one pass over the document.
type walker struct {
	*source
	parser unstable.Parser
	arrays map[string]int // path of an array of tables → elements so far
	err    error
}

func (w *walker) note(path string, n *unstable.Node) {
	if _, known := w.offsets[path]; !known {
		w.offsets[path] = int(n.Raw.Offset)
	}
}

// header notes [a.b] or [[a.b]] and returns the path its keys live under.
func (w *walker) header(e *unstable.Node) string {
	path, depth := "", 0
	for it := e.Key(); it.Next(); {
		n := it.Node()
		if w.tooDeep(depth, n) {
			return path
		}
		depth++
		path = join(path, string(n.Data))
		w.note(path, n)
		if it.IsLast() && e.Kind == unstable.ArrayTable {
			w.arrays[path]++
		}
		if count := w.arrays[path]; count > 0 {
			path = element(path, count-1)
			w.note(path, n)
		}
	}
	return path
}

func (w *walker) keyValue(table string, e *unstable.Node, depth int) {
	path := table
	for it := e.Key(); it.Next(); {
		if w.tooDeep(depth, it.Node()) {
			return
		}
		depth++
		path = join(path, string(it.Node().Data))
		w.note(path, it.Node())
	}
	w.value(path, e.Value(), e, depth)
}

// value notes what is inside arrays and inline tables; at is the nearest node with a place.
func (w *walker) value(path string, v, at *unstable.Node, depth int) {
	if w.err != nil || w.tooDeep(depth, at) {
		return
	}
	switch v.Kind {
	case unstable.InlineTable:
		for it := v.Children(); it.Next(); {
			if it.Node().Kind == unstable.KeyValue {
				w.keyValue(path, it.Node(), depth+1)
			}
		}
	case unstable.Array:
		i := 0
		for it := v.Children(); it.Next(); {
			n := it.Node()
			if n.Kind == unstable.Comment {
				continue
			}
			if n.Raw.Length > 0 {
				at = n
				w.note(element(path, i), n)
			}
			w.value(element(path, i), n, at, depth+1)
			i++
		}
	}
}

func (w *walker) tooDeep(depth int, at *unstable.Node) bool {
	if depth < maxDepth {
		return false
	}
	w.err = Errors{w.errorAt(int(at.Raw.Offset), &fault{"nested too deeply", fmt.Sprintf("at most %d levels", maxDepth), ""})}
	return true
}

// offset finds the place of a path: its own, else that of the nearest enclosing
// key; 0 for the document.
func (s *source) offset(path string) int {
	for path != "" {
		if at, ok := s.offsets[path]; ok {
			return at
		}
		path = parent(path)
	}
	return 0
}

// parent cuts the last key or index off a path.
func parent(path string) string {
	if strings.HasSuffix(path, `"`) {
		// A quoted key: its opening quote is the last one that is not escaped.
		for i := len(path) - 2; i >= 0; i-- {
			if path[i] == '"' && (i == 0 || path[i-1] != '\\') {
				return strings.TrimSuffix(path[:i], ".")
			}
		}
		return ""
	}
	return path[:max(0, strings.LastIndexAny(path, ".["))]
}

func (s *source) errorAt(offset int, f *fault) *Error {
	before := s.data[:min(offset, len(s.data))]
	return &Error{
		File:       s.name,
		Line:       bytes.Count(before, []byte("\n")) + 1,
		Column:     len(before) - (bytes.LastIndexByte(before, '\n') + 1) + 1,
		Problem:    f.problem,
		Expected:   f.expected,
		Suggestion: f.suggestion,
	}
}
