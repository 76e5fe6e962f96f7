package units

// Rate is a bit rate in bits per second.
type Rate int64

// Multiples of a rate.
const (
	Bit  Rate = 1
	Kbit      = 1000 * Bit
	Mbit      = 1000 * Kbit
	Gbit      = 1000 * Mbit
	Tbit      = 1000 * Gbit
)

// rates follows tc(8), RATES: bit and bps (bytes per second), decimal with k m g t, binary with ki mi gi ti.
var rates = quantity{
	name:    "rate",
	example: "1gbit",
	finest:  "1bit",
	units: []unit{
		{"bit", 1}, {"kbit", 1e3}, {"mbit", 1e6}, {"gbit", 1e9}, {"tbit", 1e12},
		{"kibit", 1 << 10}, {"mibit", 1 << 20}, {"gibit", 1 << 30}, {"tibit", 1 << 40},
		{"bps", 8}, {"kbps", 8e3}, {"mbps", 8e6}, {"gbps", 8e9}, {"tbps", 8e12},
		{"kibps", 8 << 10}, {"mibps", 8 << 20}, {"gibps", 8 << 30}, {"tibps", 8 << 40},
	},
	write: func(v int64) string { return Rate(v).String() },
}

// ParseRate reads a rate such as "1gbit" or "125mbps".
func ParseRate(s string) (Rate, error) {
	v, err := rates.parse(s)
	return Rate(v), err
}

// rateUnits are the units used for writing.
var rateUnits = []unit{{"tbit", 1e12}, {"gbit", 1e9}, {"mbit", 1e6}, {"kbit", 1e3}, {"bit", 1}}

// String writes the rate as ParseRate reads it.
func (r Rate) String() string { return writeWith(int64(r), rateUnits...) }

// UnmarshalText implements encoding.TextUnmarshaler.
func (r *Rate) UnmarshalText(text []byte) error {
	v, err := ParseRate(string(text))
	if err == nil {
		*r = v
	}
	return err
}

// MarshalText implements encoding.TextMarshaler.
func (r Rate) MarshalText() ([]byte, error) { return []byte(r.String()), nil }
