package tap

import (
	"fmt"
	"os"
	"testing"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"nicemu/emulator/netns"
)

// TestIntegrationClsactNotesTheLargestPacket tries what kernels before 6.6 get, which lack tcx. It is here because nobody
// outside can ask for it.
func TestIntegrationClsactNotesTheLargestPacket(t *testing.T) {
	if err := netns.CheckPrivilege(); err != nil {
		t.Skip(err)
	}
	ns, err := netns.Create(fmt.Sprintf("clsact-%d", os.Getpid()))
	if err != nil {
		t.Fatal(err)
	}
	defer ns.Delete()
	p, err := Open(ns, Config{Name: "nic0"})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	books, err := newBooks()
	if err != nil {
		t.Fatal(err)
	}
	defer books.Close()
	var in instruments
	defer in.close()
	note, err := in.program(ebpf.SchedCLS, "nicemu_note", noteProgram(books))
	if err != nil {
		t.Fatal(err)
	}
	if err := attachClsact(p, note); err != nil {
		t.Fatal(err)
	}
	err = ns.Do(func() error {
		fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		frame := make([]byte, 1234)
		frame[12], frame[13] = 0x88, 0xb6
		return unix.Sendto(fd, frame, 0, &unix.SockaddrLinklayer{Ifindex: p.Ifindex()})
	})
	if err != nil {
		t.Fatal(err)
	}
	var b [8]uint64
	if err := books.Lookup(uint32(0), &b); err != nil {
		t.Fatal(err)
	}
	if got := b[bookLargest/8]; got != 1234 {
		t.Fatalf("largest %d, sent 1234", got)
	}
}
