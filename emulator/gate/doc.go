// Package gate holds packets inside the genuine qdiscs above a TAP while the emulated card has no room for them, on any
// kernel with hfsc or tbf, and one of prio and htb.
//
// A TAP takes whatever its qdisc sends, so nothing ever queues above it. The gate puts a valve between the two, which
// passes what the card has credit for:
//
//	TX queue's class (or root)
//	└── selector 7e0q: prio, or htb where there is no prio; two bands
//	    ├── :1  sink 7e2q: pfifo limit 0
//	    └── :2  valve 7e1q: hfsc, or tbf where there is no hfsc
//	        └── the user's qdisc, options intact
//
// An hfsc class has an upper limit that counts bytes from its last change on: a change is a grant of so many (Exact). A
// tbf of 1 byte/s earns no tokens by itself, and every change sets its tokens to the whole burst (Credit says to how much).
// A change wakes nobody, so a frame is sent to the sink, which drops it while the stack runs the qdisc: that is a kick.
// Kicks show up as drops of the selector and of an mq above it, and as backlog of a taprio, which does not hear of the
// drop; never in the user's qdisc.
//
// Grant and kick follow net/sched/sch_hfsc.c, sch_tbf.c, sch_prio.c, sch_htb.c and sch_api.c of Linux 6.12.
//
// Limits. hfsc spreads a grant over time at 32 Gbit/s. tbf looks at the first packet before it may send it, and a qdisc
// that cannot just look (fq_codel, fq) has to give it out: one packet per queue is past the user's qdisc already, which
// the next one that would overtake it has to wait for. The largest GSO packet is MaxGSO, not 64 KiB; one that is larger
// all the same (forwarded, or of many tiny segments) is cut into its segments on entering the tbf. When the user replaces
// the root qdisc, traffic is not held until Follow has put the gate back.
package gate
