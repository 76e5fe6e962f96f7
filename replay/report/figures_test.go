package report

import "testing"

func TestFiguresHaveThreeDigitsAndTheLargestUnitTheyReach(t *testing.T) {
	for _, x := range []struct{ got, want string }{
		{Rate(0), "0"}, {Rate(0.25), "0.25 bit/s"}, {Rate(999), "999 bit/s"}, {Rate(1e3), "1.00 kbit/s"},
		{Rate(96e6), "96.0 Mbit/s"}, {Rate(9.414e9), "9.41 Gbit/s"}, {Rate(1.6e12), "1600 Gbit/s"},
		{Bytes(0), "0"}, {Bytes(8), "8.00 B"}, {Bytes(1514), "1.51 kB"}, {Bytes(2.5e6), "2.50 MB"},
		{PerSecond(0), "0"}, {PerSecond(12), "12.0"}, {PerSecond(64e3), "64.0 k"}, {PerSecond(14.88e6), "14.9 M"},
		{Count(0, "audit"), "0 audits"}, {Count(1, "audit"), "1 audit"}, {Count(uint64(2), "audit"), "2 audits"},
		{Ns(0), "0"}, {Ns(999), "999ns"}, {Ns(1000), "1.00 µs"}, {Ns(73_400_000), "73.4 ms"}, {Ns(2e9), "2.00 s"},
	} {
		if x.got != x.want {
			t.Errorf("%q, want %q", x.got, x.want)
		}
	}
}
