package format

import (
	"fmt"
	"strconv"
	"strings"

	"nicemu/devices/units"
)

// choice is a string that may only be one of a few words.
type choice interface{ choices() []string }

// Kernel says which kernel runs a scenario.
type Kernel string

// The kernels.
const (
	KernelAuto  Kernel = "auto"  // the host's if it has what is needed, else the lab's
	KernelHost  Kernel = "host"  // this machine's, in real time
	KernelLab   Kernel = "lab"   // the lab kernel, in virtual time
	KernelModel Kernel = "model" // none: the models alone, in virtual time
)

func (Kernel) choices() []string { return []string{"auto", "host", "lab", "model"} }

// Backpressure says how the kernel's qdiscs learn that the card is full.
type Backpressure string

// The ways of back-pressure.
const (
	BackpressureAuto   Backpressure = "auto"
	BackpressureNative Backpressure = "native"
	BackpressureGate   Backpressure = "gate"
	BackpressureLossy  Backpressure = "lossy"
)

func (Backpressure) choices() []string { return []string{"auto", "native", "gate", "lossy"} }

// Kind is a kind of workload.
type Kind string

// The kinds of workload.
const (
	KindIperf3 Kind = "iperf3" // the program, one client and one server
	KindExec   Kind = "exec"   // any command
	KindRR     Kind = "rr"     // built in: TCP request and response, one after the other
	KindPing   Kind = "ping"   // the program
)

func (Kind) choices() []string { return []string{"iperf3", "exec", "rr", "ping"} }

// Proto is a transport protocol.
type Proto string

// The protocols of iperf3 workloads.
const (
	TCP Proto = "tcp"
	UDP Proto = "udp"
)

func (Proto) choices() []string { return []string{"tcp", "udp"} }

// Op compares a measured value with an expected one.
type Op string

// The comparisons.
const (
	Equal          Op = "=="
	Less           Op = "<"
	LessOrEqual    Op = "<="
	Greater        Op = ">"
	GreaterOrEqual Op = ">="
)

func (Op) choices() []string { return []string{"==", "<", "<=", ">", ">="} }

// fromTOML is a value that has more than one spelling in a file.
type fromTOML interface{ setTOML(v any) *fault }

// TOS is the type-of-service byte: a number, or one of the words ssh's IPQoS
// knows, and "interactive" and "bulk" for lowdelay and throughput. For IPv4 the
// kernel also derives a queueing priority from it; for IPv6 it does not, so a
// workload there needs priority as well.
type TOS uint8

// tosWords are DSCP names (RFC 2474, 2597, 3246, 8622) shifted into the byte, and RFC 1349's.
var tosWords = map[string]TOS{
	"interactive": 0x10, "bulk": 0x08,
	"lowdelay": 0x10, "throughput": 0x08, "reliability": 0x04,
	"cs0": 0x00, "cs1": 0x20, "cs2": 0x40, "cs3": 0x60, "cs4": 0x80, "cs5": 0xa0, "cs6": 0xc0, "cs7": 0xe0,
	"af11": 0x28, "af12": 0x30, "af13": 0x38, "af21": 0x48, "af22": 0x50, "af23": 0x58,
	"af31": 0x68, "af32": 0x70, "af33": 0x78, "af41": 0x88, "af42": 0x90, "af43": 0x98,
	"ef": 0xb8, "le": 0x04,
}

func (t *TOS) setTOML(v any) *fault {
	const expected = "0 to 255, or a word such as interactive, bulk, lowdelay, ef, af41, cs1"
	var n int64
	switch v := v.(type) {
	case int64:
		n = v
	case string:
		if word, ok := tosWords[strings.ToLower(v)]; ok {
			*t = word
			return nil
		}
		parsed, err := strconv.ParseInt(v, 0, 64)
		if err != nil {
			return &fault{"unknown type of service " + quoted(v), expected, nearest(v, sortedKeys(tosWords))}
		}
		n = parsed
	default:
		return &fault{typeName(v), expected, ""}
	}
	if n < 0 || n > 255 {
		return &fault{fmt.Sprintf("%d does not fit in the type-of-service byte", n), expected, ""}
	}
	*t = TOS(n)
	return nil
}

// MarshalText writes the byte as iproute2 does.
func (t TOS) MarshalText() ([]byte, error) { return fmt.Appendf(nil, "%#02x", uint8(t)), nil }

// Value is the right-hand side of an expectation in base units.
type Value struct {
	Number float64
	Unit   Unit
	text   string // as in the file
}

// Unit is the base unit of a number in the result.
type Unit string

// The units of results.
const (
	None  Unit = ""
	NS    Unit = "ns"
	BPS   Unit = "bps"
	Bytes Unit = "bytes"
)

func (v *Value) setTOML(raw any) *fault {
	switch raw := raw.(type) {
	case int64:
		*v = Value{Number: float64(raw)}
	case float64:
		if raw-raw != 0 {
			return &fault{"not a finite number", "a number, or a number and a unit", ""}
		}
		*v = Value{Number: raw}
	case string:
		return v.parse(raw)
	default:
		return &fault{typeName(raw), "a number, or text with a unit, e.g. \"2ms\"", ""}
	}
	return nil
}

// parse tries each quantity. Sizes and durations share a unit: as in tc, m is
// that of sizes.
func (v *Value) parse(s string) *fault {
	if r, err := units.ParseRate(s); err == nil {
		*v = Value{float64(r), BPS, s}
	} else if b, err := units.ParseSize(s); err == nil {
		*v = Value{float64(b), Bytes, s}
	} else if d, err := units.ParseDuration(s); err == nil {
		*v = Value{float64(d), NS, s}
	} else {
		return &fault{quoted(s) + " is not a duration, rate or size", "a number and a unit, e.g. 2ms, 940mbit, 24kb", ""}
	}
	return nil
}

func typeName(v any) string {
	switch v.(type) {
	case string:
		return "text"
	case int64:
		return "an integer"
	case float64:
		return "a floating-point number"
	case bool:
		return "a boolean"
	case []any:
		return "an array"
	case map[string]any:
		return "a table"
	}
	return "a date or time"
}
