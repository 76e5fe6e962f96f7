package units

// Size is an amount of data in bytes.
type Size int64

// Multiples of a size; binary, as tc has them.
const (
	Byte Size = 1
	KB        = 1024 * Byte
	MB        = 1024 * KB
	GB        = 1024 * MB
)

// sizes follows tc(8), SIZES: k and kb are both 1024 bytes.
var sizes = quantity{
	name:    "size",
	example: "24kb",
	finest:  "1b",
	units: []unit{
		{"b", 1}, {"kb", 1 << 10}, {"mb", 1 << 20}, {"gb", 1 << 30},
		{"k", 1 << 10}, {"m", 1 << 20}, {"g", 1 << 30},
	},
	write: func(v int64) string { return Size(v).String() },
}

// ParseSize reads a size such as "24kb" or "1514b".
func ParseSize(s string) (Size, error) {
	v, err := sizes.parse(s)
	return Size(v), err
}

// sizeUnits are the units used for writing.
var sizeUnits = []unit{{"gb", 1 << 30}, {"mb", 1 << 20}, {"kb", 1 << 10}, {"b", 1}}

// String writes the size as ParseSize reads it.
func (s Size) String() string { return writeWith(int64(s), sizeUnits...) }

// UnmarshalText implements encoding.TextUnmarshaler.
func (s *Size) UnmarshalText(text []byte) error {
	v, err := ParseSize(string(text))
	if err == nil {
		*s = v
	}
	return err
}

// MarshalText implements encoding.TextMarshaler.
func (s Size) MarshalText() ([]byte, error) { return []byte(s.String()), nil }
