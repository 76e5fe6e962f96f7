// Package tap is the kernel's side of an emulated card: a TAP device with 1 to 16 queues inside a network namespace.
//
// It follows drivers/net/tun.c. A Port hands every frame the kernel transmits to the reader together with its
// virtio_net_hdr, so that GSO frames and unfinished checksums cross unbroken, and takes frames the card received. Three
// small eBPF programs, written in assembler and loaded without a compiler, do what user space cannot: they choose the
// queue by priority (tun ignores the priority maps of mqprio and taprio), keep exact books of what left the qdisc, and
// note the largest packet that entered it.
//
// Left out: TUN devices, NAPI and vhost modes, and the packet's launch time and mark, which tun does not show.
package tap
