package report

import (
	"fmt"
	"math"
)

// Unit is a name, with a space before it if it is to have one, and its worth in
// base units.
type Unit struct {
	Worth float64
	Name  string
}

// Figure is v in three digits, or more if they stand before the point, in the
// largest unit that it reaches; zero has no unit.
func Figure(v float64, largestFirst ...Unit) string {
	if v == 0 {
		return "0"
	}
	var u Unit
	for _, u = range largestFirst {
		if v >= u.Worth {
			break
		}
	}
	v /= u.Worth
	decimals := 2 - int(math.Floor(math.Log10(math.Abs(v))))
	return fmt.Sprintf("%.*f%s", min(max(0, decimals), 2), v, u.Name)
}

// Count is n things, the plural made with an s.
func Count[N int | int64 | uint64](n N, thing string) string {
	if n != 1 {
		thing += "s"
	}
	return fmt.Sprintf("%d %s", n, thing)
}

// Rate is bits a second, in the units of iperf3.
func Rate(bps float64) string {
	return Figure(bps, Unit{1e9, " Gbit/s"}, Unit{1e6, " Mbit/s"}, Unit{1e3, " kbit/s"}, Unit{1, " bit/s"})
}

// Bytes is an amount of data, in decimal units.
func Bytes(b float64) string { return Figure(b, Unit{1e6, " MB"}, Unit{1e3, " kB"}, Unit{1, " B"}) }

// PerSecond is a number of events a second.
func PerSecond(v float64) string { return Figure(v, Unit{1e6, " M"}, Unit{1e3, " k"}, Unit{1, ""}) }

// Ns is a time, exact below a microsecond.
func Ns(ns int64) string {
	if 0 < ns && ns < 1000 {
		return fmt.Sprintf("%dns", ns)
	}
	return Figure(float64(ns), Unit{1e9, " s"}, Unit{1e6, " ms"}, Unit{1e3, " µs"})
}
