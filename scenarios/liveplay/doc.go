// Package liveplay replays captures live: through the genuine qdiscs of a
// namespace into an emulated card, or from the wire into the card's receive half.
//
//	side qdisc   capture -> AF_PACKET socket -> qdisc -> card -> wire -> card of the peer namespace, if there is one
//	side wire    capture -> wire -> card -> kernel of the namespace
//
// The way of a packet, in the order of the files:
//
//	reader     a goroutine reads ahead into a ring of batches          (reader.go)
//	offload    GSO packets get what the kernel needs to segment them   (offload.go)
//	pace       the live loop's timers send each when it is due         (pace.go)
//	flood      or, at top speed, a thread beside the loop              (flood.go)
//	socket     sendmmsg                                                (socket.go)
//	arrive     or the card's receive half                              (arrive.go)
//	drain      until qdisc and card are empty                          (drain.go)
//	report     what became of every frame                              (report.go)
//
// It follows tcpreplay: frames go out as they are in the capture, addresses
// and checksums too. At top speed it sends like any program, as much at a time
// as the socket's buffer holds; at times of its own a frame goes when it is due,
// whether the qdisc has room or not. It leaves out launch times and rewriting.
package liveplay
