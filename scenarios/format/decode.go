package format

import (
	"encoding"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"reflect"
	"slices"
	"strings"

	"nicemu/devices/units"
)

// decoder fills structs from the values go-toml read. go-toml's own strict mode
// stops at the first wrong type and speaks of Go types; this one goes on, and speaks of the file.
type decoder struct {
	fail func(path string, f *fault)
	// order sorts the keys of a table as in the file.
	order func(path string) int
}

// Limits on lists, so that no file can ask for much memory or time.
const (
	maxTables = 64  // in each array of tables
	maxKnobs  = 256 // of a card
	maxItems  = 1024
	maxText   = 4096
)

// table fills the struct v; place is how messages call it: "[[nic]]".
func (d *decoder) table(path, place string, m map[string]any, v reflect.Value) {
	fields := fieldsOf(v.Type())
	for _, key := range d.keys(path, m) {
		at := join(path, key)
		i, ok := fields[key]
		if !ok {
			names := fieldNames(v.Type())
			d.fail(at, &fault{
				fmt.Sprintf("unknown key %s in %s", quoted(key), place),
				"one of " + strings.Join(names, ", "),
				nearest(key, names),
			})
			continue
		}
		d.value(at, key, m[key], v.Field(i))
	}
}

// value fills one field called key.
func (d *decoder) value(path, key string, raw any, v reflect.Value) {
	if f := d.assign(path, key, raw, v); f != nil {
		d.fail(path, &fault{key + ": " + f.problem, f.expected, f.suggestion})
	}
}

// assign stores raw in v or says why not. Faults deeper than v are reported on the way.
func (d *decoder) assign(path, key string, raw any, v reflect.Value) *fault {
	switch target := v.Addr().Interface().(type) {
	case *Sweep:
		return target.set(d, path, raw)
	case *Selector:
		return target.set(d, path, raw)
	case *Knobs:
		return target.set(d, path, raw)
	case fromTOML:
		return target.setTOML(raw)
	case encoding.TextUnmarshaler:
		return assignText(raw, target)
	}
	switch v.Kind() {
	case reflect.Bool:
		b, ok := raw.(bool)
		if !ok {
			return &fault{typeName(raw), "true or false", ""}
		}
		v.SetBool(b)
	case reflect.Int, reflect.Int64:
		n, ok := raw.(int64)
		if !ok {
			return &fault{typeName(raw), "an integer", ""}
		}
		v.SetInt(n)
	case reflect.String:
		return assignString(raw, v)
	case reflect.Slice:
		return d.slice(path, key, raw, v)
	case reflect.Struct:
		m, ok := raw.(map[string]any)
		if !ok {
			return &fault{typeName(raw), "a table", ""}
		}
		d.table(path, "["+key+"]", m, v)
	default:
		panic("format: no decoding for " + v.Type().String())
	}
	return nil
}

func assignString(raw any, v reflect.Value) *fault {
	if c, ok := v.Interface().(choice); ok {
		words := c.choices()
		expected := "one of " + strings.Join(words, ", ")
		s, ok := raw.(string)
		if !ok {
			return &fault{typeName(raw), expected, ""}
		}
		if !slices.Contains(words, s) {
			return &fault{"unknown value " + quoted(s), expected, nearest(s, words)}
		}
		v.SetString(s)
		return nil
	}
	s, ok := raw.(string)
	if !ok {
		return &fault{typeName(raw), "text in quotes", ""}
	}
	if len(s) > maxText {
		return &fault{fmt.Sprintf("%d bytes of text", len(s)), fmt.Sprintf("at most %d", maxText), ""}
	}
	if i := strings.IndexFunc(s, func(r rune) bool { return r < ' ' || r == 0x7f }); i >= 0 {
		return &fault{fmt.Sprintf("control character %q in the text", s[i]), "one line of plain text", ""}
	}
	v.SetString(s)
	return nil
}

// assignText reads the types that have a text form: quantities and addresses.
func assignText(raw any, target encoding.TextUnmarshaler) *fault {
	expected := ""
	switch target.(type) {
	case *units.Rate:
		expected = `a rate in quotes with its unit, e.g. "1gbit"`
	case *units.Duration:
		expected = `a duration in quotes with its unit, e.g. "64us"`
	case *units.Size:
		expected = `a size in quotes with its unit, e.g. "24kb"`
	case *units.Percent:
		expected = `a percentage in quotes, e.g. "0.1%"`
	case *netip.Prefix:
		expected = "an address and the length of its prefix, e.g. 10.0.0.1/24 or fd00::1/64"
	}
	s, ok := raw.(string)
	if !ok {
		return &fault{typeName(raw), expected, ""}
	}
	err := target.UnmarshalText([]byte(s))
	var quantity *units.Error
	if errors.As(err, &quantity) {
		return &fault{fmt.Sprintf("%q: %s", quantity.Text, quantity.Problem), quantity.Expected, ""}
	}
	if err != nil || s == "" {
		return &fault{"cannot read " + quoted(s), expected, ""}
	}
	return nil
}

func (d *decoder) slice(path, key string, raw any, v reflect.Value) *fault {
	list, ok := raw.([]any)
	if !ok {
		if _, ok := raw.(map[string]any); ok && v.Type().Elem().Kind() == reflect.Struct {
			return &fault{"a single table", "[[" + key + "]] with two brackets: there may be several", ""}
		}
		return &fault{typeName(raw), "a list in brackets", ""}
	}
	item := v.Type().Elem()
	isTable := item.Kind() == reflect.Struct && !reflect.PointerTo(item).Implements(reflect.TypeFor[encoding.TextUnmarshaler]())
	most := maxItems
	if isTable && item != reflect.TypeFor[Step]() {
		most = maxTables
	}
	if len(list) > most {
		return &fault{fmt.Sprintf("%d of them", len(list)), fmt.Sprintf("at most %d", most), ""}
	}
	out := reflect.MakeSlice(v.Type(), len(list), len(list))
	for i, raw := range list {
		at, e := element(path, i), out.Index(i)
		if !isTable {
			d.value(at, fmt.Sprintf("%s, item %d", key, i+1), raw, e)
			continue
		}
		m, ok := raw.(map[string]any)
		if !ok {
			d.fail(at, &fault{key + ": " + typeName(raw), "a table", ""})
			continue
		}
		if defaults, ok := e.Addr().Interface().(interface{ setDefaults() }); ok {
			defaults.setDefaults()
		}
		d.table(at, "[["+key+"]]", m, e)
	}
	v.Set(out)
	return nil
}

// keys are a table's keys in file order.
func (d *decoder) keys(path string, m map[string]any) []string {
	return slices.SortedFunc(maps.Keys(m), func(a, b string) int {
		if by := d.order(join(path, a)) - d.order(join(path, b)); by != 0 {
			return by
		}
		return strings.Compare(a, b)
	})
}

// fieldsOf maps the keys of a struct to its fields.
func fieldsOf(t reflect.Type) map[string]int {
	fields := map[string]int{}
	for i := range t.NumField() {
		if name, _, _ := strings.Cut(t.Field(i).Tag.Get("toml"), ","); name != "" {
			fields[name] = i
		}
	}
	return fields
}

// fieldNames are the keys of a struct in the order of declaration.
func fieldNames(t reflect.Type) []string {
	var names []string
	for i := range t.NumField() {
		if name, _, _ := strings.Cut(t.Field(i).Tag.Get("toml"), ","); name != "" {
			names = append(names, name)
		}
	}
	return names
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
