// Package replay sends captures through a card model in virtual time and tells what the card would have done to every frame.
//
// The way of a frame, in the order of the files:
//
//	input      captures are read, cut to a window, merged by time, looped       (input.go)
//	stream     packets become frames: when due, into which queue, cut or kept   (stream.go, schedule.go, queue.go)
//	feed       frames are handed over when they are due                         (feed.go)
//	qdisc      a model of one, or none                                          (qdisc.go)
//	card       driver and hardware of package devices, then the wire            (run.go)
//	accounts   what happened: books, legs, event log, wire file, time series    (book.go, legs.go, log.go, wirefile.go, series.go)
//	result     the document and the table                                       (result.go, report.go, table.go)
//
// It follows tcpreplay in its schedules and mergecap in merging. It leaves out: the sender's own core time and jitter (frames are handed over at
// the very nanosecond), padding of frames below 60 bytes, and checksum offload of frames that fit the MTU. The kernel segments in software after
// the qdisc; here that comes before it. Live replay shares everything up to the stream.
package replay
