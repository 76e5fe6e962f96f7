package tap

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/fnv"
	"net"
	"net/netip"
	"os"
	"time"
	"unsafe"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// complete checks the configuration and fills in what follows from the rest.
func (cfg *Config) complete(nsName string) error {
	if cfg.Queues == 0 {
		cfg.Queues = 1
	}
	if cfg.Queues < 0 || cfg.Queues > MaxQueues {
		return fmt.Errorf("TAP %s: %d queues, want 1 to %d", cfg.Name, cfg.Queues, MaxQueues)
	}
	if len(cfg.Name) == 0 || len(cfg.Name) >= unix.IFNAMSIZ {
		return fmt.Errorf("TAP name %q: want 1 to %d bytes", cfg.Name, unix.IFNAMSIZ-1)
	}
	if (cfg.TSO || cfg.USO) && !cfg.Csum {
		return fmt.Errorf("TAP %s: segmentation offload needs checksum offload", cfg.Name)
	}
	if cfg.MAC == nil {
		cfg.MAC = macFor(nsName + "/" + cfg.Name)
	}
	if len(cfg.MAC) != 6 {
		return fmt.Errorf("TAP %s: hardware address %s, want 6 bytes", cfg.Name, cfg.MAC)
	}
	return nil
}

// macFor is a locally administered unicast address that depends on nothing but the name.
func macFor(name string) net.HardwareAddr {
	h := fnv.New64a()
	h.Write([]byte(name))
	mac := net.HardwareAddr(h.Sum(nil)[2:8])
	mac[0] = mac[0]&^1 | 2
	return mac
}

// setUp configures the device and brings it up. The caller's thread is in the device's namespace, for /proc/sys.
func setUp(h *netlink.Handle, cfg *Config) (ifindex int, err error) {
	link, err := h.LinkByName(cfg.Name)
	if err != nil {
		return 0, err
	}
	step := func(what string, err error) error {
		if err != nil {
			return fmt.Errorf("%s: %w", what, err)
		}
		return nil
	}
	if err := step("hardware address", h.LinkSetHardwareAddr(link, cfg.MAC)); err != nil {
		return 0, err
	}
	if cfg.MTU != 0 {
		if err := step("MTU", h.LinkSetMTU(link, cfg.MTU)); err != nil {
			return 0, err
		}
	}
	if cfg.TxQueueLen != 0 {
		if err := step("txqueuelen", h.LinkSetTxQLen(link, cfg.TxQueueLen)); err != nil {
			return 0, err
		}
	}
	if cfg.Speed != 0 {
		if err := step("link speed", setSpeed(cfg.Name, cfg.Speed)); err != nil {
			return 0, err
		}
	}
	if err := step("duplicate address detection", detectNoDuplicates(cfg.Name)); err != nil {
		return 0, err
	}
	for _, prefix := range cfg.Addrs {
		if err := step("address "+prefix.String(), h.AddrAdd(link, address(prefix))); err != nil {
			return 0, err
		}
	}
	if err := step("bring up", h.LinkSetUp(link)); err != nil {
		return 0, err
	}
	awaitSolicitedNodes(cfg.Addrs)
	return link.Attrs().Index, nil
}

// setSpeed does what `ethtool -s NAME speed N` does, for the interface in the namespace of the calling thread.
func setSpeed(name string, mbit int) error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	cmd := ethtoolCmd{cmd: unix.ETHTOOL_SSET, duplex: 1, speed: uint16(mbit), speedHigh: uint16(mbit >> 16)}
	ifr := ifreqData{data: unsafe.Pointer(&cmd)}
	copy(ifr.name[:unix.IFNAMSIZ-1], name)
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.SIOCETHTOOL, uintptr(unsafe.Pointer(&ifr)))
	if errno != 0 {
		return errno
	}
	return nil
}

// ethtoolCmd is struct ethtool_cmd of include/uapi/linux/ethtool.h.
type ethtoolCmd struct {
	cmd       uint32
	_         [2]uint32 // supported, advertising
	speed     uint16
	duplex    uint8
	_         [13]uint8 // port to maxrxpkt
	speedHigh uint16
	_         [2]uint8
	_         [3]uint32 // lp_advertising, reserved
}

// ifreqData is struct ifreq with a pointer.
type ifreqData struct {
	name [unix.IFNAMSIZ]byte
	data unsafe.Pointer
	_    [16]byte
}

func address(prefix netip.Prefix) *netlink.Addr {
	addr := &netlink.Addr{IPNet: &net.IPNet{
		IP:   prefix.Addr().AsSlice(),
		Mask: net.CIDRMask(prefix.Bits(), prefix.Addr().BitLen()),
	}}
	if prefix.Addr().Is6() {
		addr.Flags = unix.IFA_F_NODAD
	}
	return addr
}

// detectNoDuplicates makes the link-local address usable at once, too. A kernel without IPv6 has no such file.
func detectNoDuplicates(name string) error {
	err := os.WriteFile("/proc/sys/net/ipv6/conf/"+name+"/accept_dad", []byte("0"), 0)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return err
}

// awaitSolicitedNodes waits until the kernel listens for neighbour solicitations for the IPv6 addresses, which it begins
// to do some milliseconds after the interface came up. One that it misses is repeated only a second later. It is a
// courtesy: without the file or in time it gives up.
func awaitSolicitedNodes(prefixes []netip.Prefix) {
	const step, patience = 200 * time.Microsecond, 300 * time.Millisecond
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(step) {
		groups, err := os.ReadFile("/proc/thread-self/net/igmp6")
		if err != nil || listens(groups, prefixes) {
			return
		}
	}
}

func listens(groups []byte, prefixes []netip.Prefix) bool {
	for _, p := range prefixes {
		a := p.Addr().As16()
		group := append([]byte{0xff, 0x02, 11: 0x01, 12: 0xff}, a[13:]...)
		if p.Addr().Is6() && !bytes.Contains(groups, hex.AppendEncode(nil, group)) {
			return false
		}
	}
	return true
}

// setOffloads tells the kernel what the card can do for it (TUNSETOFFLOAD).
func setOffloads(fd int, cfg *Config) error {
	flags := 0
	if cfg.Csum {
		flags |= unix.TUN_F_CSUM
	}
	if cfg.TSO {
		flags |= unix.TUN_F_TSO4 | unix.TUN_F_TSO6 | unix.TUN_F_TSO_ECN
	}
	if cfg.USO {
		flags |= unix.TUN_F_USO4 | unix.TUN_F_USO6
	}
	err := unix.IoctlSetInt(fd, unix.TUNSETOFFLOAD, flags)
	if err == unix.EINVAL && cfg.USO {
		return &Unsupported{"UDP segmentation offload to TAP devices (TUN_F_USO4)", "it comes with Linux 6.2"}
	}
	if err != nil {
		return fmt.Errorf("TUNSETOFFLOAD: %w", err)
	}
	return nil
}
