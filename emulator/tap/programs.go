package tap

import (
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
)

// KickMajor is the first of 16 qdisc majors: a packet whose priority is a handle KickMajor+q:minor goes to queue q. It is
// below 0x8000, where the kernel's own numbers for qdiscs start, and above what people type.
const KickMajor = 0x7e00

// steeredHeaders is what the steering program takes as the headers of a segment: Ethernet, IPv6, TCP with timestamps.
const steeredHeaders = 14 + 40 + 32

// longestHeaders are those of Ethernet with a VLAN tag, IPv6, and TCP with all options.
const longestHeaders = 18 + 40 + 60

// Offsets in struct __sk_buff (include/uapi/linux/bpf.h) and in book.
const (
	skbLen          = 0
	skbQueueMapping = 12
	skbProtocol     = 16
	skbPriority     = 32
	skbHash         = 68
	skbWireLen      = 160
	skbGSOSegs      = 164

	bookPackets = 8
	bookWire    = 16
	bookLargest = 24
)

func (in *instruments) program(kind ebpf.ProgramType, name string, code asm.Instructions) (*ebpf.Program, error) {
	prog, err := ebpf.NewProgram(&ebpf.ProgramSpec{Name: name, Type: kind, License: "MIT", Instructions: code})
	if err != nil {
		return nil, fmt.Errorf("program %s: %w", name, err)
	}
	in.later(prog.Close)
	return prog, nil
}

// lookup leaves the address of the map's value for the key in R2 in R0, and jumps to the label if there is none.
func lookup(m *ebpf.Map, otherwise string) asm.Instructions {
	return asm.Instructions{
		asm.StoreMem(asm.R10, -4, asm.R2, asm.Word),
		asm.Mov.Reg(asm.R2, asm.R10),
		asm.Add.Imm(asm.R2, -4),
		asm.LoadMapPtr(asm.R1, m.FD()),
		asm.FnMapLookupElem.Call(),
		asm.JEq.Imm(asm.R0, 0, otherwise),
	}
}

// noteLargest raises the largest packet of the book R0 points to, to R7, and continues at the label. Two CPUs may do so
// at once and one of them lose; the next packet of that size makes it good.
func noteLargest(end string) asm.Instructions {
	return asm.Instructions{
		asm.LoadMem(asm.R1, asm.R0, bookLargest, asm.DWord),
		asm.JGE.Reg(asm.R1, asm.R7, end),
		asm.StoreMem(asm.R0, bookLargest, asm.R7, asm.DWord),
	}
}

func join(parts ...asm.Instructions) (all asm.Instructions) {
	for _, p := range parts {
		all = append(all, p...)
	}
	return all
}

// wireBytes leaves in dst the length of the packet that skb points to, and the headers again for every segment but the
// first. It spoils R1.
func wireBytes(dst, skb asm.Register, headers int32) asm.Instructions {
	return asm.Instructions{
		asm.LoadMem(dst, skb, skbGSOSegs, asm.Word),
		asm.JEq.Imm(dst, 0, "whole"),
		asm.Sub.Imm(dst, 1),
		asm.Mul.Imm(dst, headers),
		asm.LoadMem(asm.R1, skb, skbLen, asm.Word).WithSymbol("whole"),
		asm.Add.Reg(dst, asm.R1),
	}
}

// countProgram runs in tun's transmit call, after the qdisc. It counts the packet for its queue and lets it pass whole.
func countProgram(books *ebpf.Map) asm.Instructions {
	return join(asm.Instructions{
		asm.Mov.Reg(asm.R6, asm.R1),
		asm.LoadMem(asm.R7, asm.R6, skbLen, asm.Word),
	}, wireBytes(asm.R8, asm.R6, longestHeaders), asm.Instructions{
		asm.LoadMem(asm.R2, asm.R6, skbQueueMapping, asm.Word),
	}, lookup(books, "out"), asm.Instructions{
		asm.StoreXAdd(asm.R0, asm.R7, asm.DWord),
		asm.Add.Imm(asm.R0, bookWire),
		asm.StoreXAdd(asm.R0, asm.R8, asm.DWord),
		asm.Mov.Imm(asm.R1, 1),
		asm.Add.Imm(asm.R0, bookPackets-bookWire),
		asm.StoreXAdd(asm.R0, asm.R1, asm.DWord),
		asm.Mov.Reg(asm.R0, asm.R7).WithSymbol("out"),
		asm.Return(),
	})
}

// noteProgram runs before the qdisc of a Port with one queue. wire_len is qdisc_pkt_len. It decides nothing (-1 is
// TCX_NEXT and TC_ACT_UNSPEC).
func noteProgram(books *ebpf.Map) asm.Instructions {
	return join(asm.Instructions{
		asm.LoadMem(asm.R7, asm.R1, skbWireLen, asm.Word),
		asm.Mov.Imm(asm.R2, 0),
	}, lookup(books, "out"), noteLargest("out"), asm.Instructions{
		asm.Mov.Imm(asm.R0, -1).WithSymbol("out"),
		asm.Return(),
	})
}

// steerProgram runs where tun chooses the queue, before the qdisc. R6 is the packet, R8 its hash, R9 its queue.
func steerProgram(steering, books *ebpf.Map) asm.Instructions {
	return join(asm.Instructions{
		asm.Mov.Reg(asm.R6, asm.R1),
		asm.LoadMem(asm.R2, asm.R6, skbPriority, asm.Word),
		asm.Mov.Reg(asm.R0, asm.R2),
		asm.RSh.Imm(asm.R0, 16),
		asm.Sub.Imm(asm.R0, KickMajor),
		asm.JGE.Imm(asm.R0, MaxQueues, "traffic"),
		asm.Return(),
		asm.Mov.Imm(asm.R9, 0).WithSymbol("traffic"),
		asm.And.Imm(asm.R2, 15),
	}, lookup(steering, "chosen"), asm.Instructions{
		asm.LoadMem(asm.R9, asm.R0, 0, asm.Word), // First
		asm.LoadMem(asm.R7, asm.R0, 4, asm.Word), // Count
		asm.JEq.Imm(asm.R7, 1, "chosen"),
	}, flowHash(), asm.Instructions{
		asm.Mod.Reg(asm.R8, asm.R7),
		asm.Add.Reg(asm.R9, asm.R8),
		asm.Mov.Reg(asm.R2, asm.R9).WithSymbol("chosen"),
	}, wireBytes(asm.R7, asm.R6, steeredHeaders), lookup(books, "out"), noteLargest("out"), asm.Instructions{
		asm.Mov.Reg(asm.R0, asm.R9).WithSymbol("out"),
		asm.Return(),
	})
}

// flowHash leaves a hash of the packet's flow in R8: the socket's or the card's if there is one, else made of addresses
// and ports. A packet too short for them goes to queue 0: LoadAbs ends the program.
func flowHash() asm.Instructions {
	const ipv4, ipv6 = 0x0800, 0x86dd
	mix := func(offset int32) asm.Instructions {
		return asm.Instructions{
			asm.LoadAbs(offset, asm.Word),
			asm.Xor.Reg(asm.R8, asm.R0),
			asm.Mul.Imm32(asm.R8, 0x01000193), // FNV's prime
		}
	}
	code := asm.Instructions{
		asm.LoadMem(asm.R8, asm.R6, skbHash, asm.Word),
		asm.JNE.Imm(asm.R8, 0, "hashed"),
		asm.LoadAbs(12, asm.Half),
		asm.JEq.Imm(asm.R0, ipv6, "ipv6"),
		asm.JNE.Imm(asm.R0, ipv4, "hashed"),
	}
	code = join(code, mix(26), mix(30), asm.Instructions{
		asm.LoadAbs(20, asm.Half),
		asm.And.Imm(asm.R0, 0x3fff),
		asm.JNE.Imm(asm.R0, 0, "mixed"), // only the first fragment has ports
	}, mix(34), asm.Instructions{asm.Ja.Label("mixed")})
	v6 := mix(22)
	v6[0] = v6[0].WithSymbol("ipv6")
	code = join(code, v6)
	for offset := int32(26); offset <= 54; offset += 4 {
		code = join(code, mix(offset))
	}
	return join(code, asm.Instructions{
		asm.Mov.Reg(asm.R0, asm.R8).WithSymbol("mixed"), // the low bits of a product are the worst
		asm.RSh.Imm(asm.R0, 16),
		asm.Xor.Reg(asm.R8, asm.R0),
		asm.Mov.Reg32(asm.R8, asm.R8).WithSymbol("hashed"),
	})
}
