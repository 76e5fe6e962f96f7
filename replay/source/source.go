// Package source offers frames to a card in runs without a kernel: what
// programs and the transport layer do above the qdisc.
//
// It follows net/core/pktgen.c, the use of iperf3 and netperf, and for bulk TCP
// the two limits of net/ipv4/tcp_output.c that matter below TCP
// (tcp_tso_autosize, tcp_small_queue_check). It leaves out TCP itself: no
// handshake, no loss recovery, no congestion control; see [TCP].
//
// All randomness comes from the engine, so a run is a function of its seed.
// Every source is started once and then runs for as long as the engine does, or
// until it is stopped.
package source

import (
	"math/bits"

	"nicemu/devices/engine"
)

// Bytes around a payload.
const (
	ethernet = 14
	ipTCP    = 20 + 20 + 12 // with the timestamp option
	// UDPHeader is the headers of a UDP datagram over IPv4.
	UDPHeader = ethernet + 20 + 8
	// TCPHeader is the headers of a TCP segment with timestamps over IPv4.
	TCPHeader = ethernet + ipTCP
	// MSS is the payload of a full TCP segment at an MTU of 1500 with
	// timestamps.
	MSS = 1500 - ipTCP
)

// every is the k-th multiple of a period of num/den nanoseconds, without drift.
func every(k uint64, num, den int64) engine.Time {
	hi, lo := bits.Mul64(k, uint64(num%den))
	rest, _ := bits.Div64(hi, lo, uint64(den))
	return engine.Time(int64(k)*(num/den) + int64(rest))
}
