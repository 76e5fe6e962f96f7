package tap

import (
	"errors"
	"fmt"
	"os"
	"syscall"

	"github.com/songgao/water"
	"github.com/vishvananda/netlink"
	vns "github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"nicemu/emulator/netns"
)

// IFFBackpressure is the TUNSETIFF flag that makes a full ring stop its queue, from Linux 7.3 on.
const IFFBackpressure = 0x0080

// Unsupported says that the kernel lacks something a Port was asked for.
type Unsupported struct {
	// Feature is what is missing.
	Feature string
	// Since names the first kernel that has it, or what to do to get it.
	Since string
}

func (e *Unsupported) Error() string {
	return e.Feature + " is not supported by this kernel: " + e.Since
}

// Features reports the TUNSETIFF flags the kernel knows (TUNGETFEATURES).
func Features() (uint32, error) {
	fd, err := openTun()
	if err != nil {
		return 0, err
	}
	defer unix.Close(fd)
	return unix.IoctlGetUint32(fd, unix.TUNGETFEATURES)
}

// Open makes the TAP device inside the namespace, sets it up and brings it up. It fails with *netns.NeedsPrivilege,
// *Unsupported, or an error that names the step. An interface that already has the name is not touched.
func Open(ns *netns.NS, cfg Config) (*Port, error) {
	if err := cfg.complete(ns.Name()); err != nil {
		return nil, err
	}
	if err := netns.CheckPrivilege(); err != nil {
		return nil, err
	}
	p := &Port{ns: ns, cfg: cfg}
	err := ns.Do(func() (err error) {
		if p.fds, err = openQueues(&cfg); err != nil {
			return err
		}
		if p.handle, err = netlink.NewHandleAt(vns.NsHandle(ns.FD()), unix.NETLINK_ROUTE); err != nil {
			return err
		}
		p.ifindex, err = setUp(p.handle, &cfg)
		return err
	})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("TAP %s: %w", cfg.Name, err), p.Close())
	}
	return p, nil
}

func openTun() (int, error) {
	fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	switch err {
	case nil:
		return fd, nil
	case unix.ENOENT, unix.ENODEV, unix.ENXIO:
		return -1, &Unsupported{"TUN/TAP (/dev/net/tun)", "load it with `modprobe tun`, or build the kernel with CONFIG_TUN"}
	default:
		return -1, fmt.Errorf("open /dev/net/tun: %w", err)
	}
}

// openQueues attaches the queues in order. water knows no IFF_VNET_HDR, but a queue inherits the flags of a device that
// exists. So an opener makes the device, the first queue of water's joins it, and the opener leaves; the first queue then
// takes the opener's number 0.
func openQueues(cfg *Config) (fds []int, err error) {
	opener, err := openTun()
	if err != nil {
		return nil, err
	}
	defer func() {
		if opener >= 0 {
			unix.Close(opener)
		}
		if err != nil {
			for _, fd := range fds {
				unix.Close(fd)
			}
			fds = nil
		}
	}()
	if err := create(opener, cfg); err != nil {
		return nil, err
	}
	for q := range cfg.Queues {
		fd, err := attach(cfg.Name)
		if err != nil {
			return fds, fmt.Errorf("queue %d: %w", q, err)
		}
		fds = append(fds, fd)
		if q == 0 {
			unix.Close(opener)
			opener = -1
		}
	}
	if err := cfg.checkFlags(fds[0]); err != nil {
		return fds, err
	}
	return fds, setOffloads(fds[0], cfg)
}

// flags of the device. All devices are multi-queue ones, since only those let water's queue join.
func (cfg *Config) flags() uint16 {
	f := uint16(unix.IFF_TAP | unix.IFF_NO_PI | unix.IFF_VNET_HDR | unix.IFF_MULTI_QUEUE)
	if cfg.Backpressure {
		f |= IFFBackpressure
	}
	return f
}

// create makes the device of an opened /dev/net/tun.
func create(fd int, cfg *Config) error {
	features, err := unix.IoctlGetUint32(fd, unix.TUNGETFEATURES)
	if err != nil {
		return fmt.Errorf("TUNGETFEATURES: %w", err)
	}
	if cfg.Backpressure && features&IFFBackpressure == 0 {
		return &Unsupported{"back-pressure from TAP devices (IFF_BACKPRESSURE)", "it comes with Linux 7.3"}
	}
	ifr, err := unix.NewIfreq(cfg.Name)
	if err != nil {
		return fmt.Errorf("interface name %q: %w", cfg.Name, err)
	}
	ifr.SetUint16(cfg.flags() | unix.IFF_TUN_EXCL)
	switch err := unix.IoctlIfreq(fd, unix.TUNSETIFF, ifr); err {
	case nil:
		return nil
	case unix.EBUSY, unix.EEXIST:
		return fmt.Errorf("an interface of that name: %w", os.ErrExist)
	default:
		return fmt.Errorf("TUNSETIFF: %w", err)
	}
}

// attach joins one more queue through water and returns its descriptor. water's own is closed again: it is registered
// with Go's poller, which would wake up for every frame.
func attach(name string) (int, error) {
	syscall.ForkLock.RLock() // water opens without O_CLOEXEC
	defer syscall.ForkLock.RUnlock()
	w, err := water.New(water.Config{
		DeviceType:             water.TAP,
		PlatformSpecificParams: water.PlatformSpecificParams{Name: name, MultiQueue: true},
	})
	if err != nil {
		return -1, err
	}
	defer w.Close()
	conn, err := w.ReadWriteCloser.(syscall.Conn).SyscallConn()
	if err != nil {
		return -1, err
	}
	fd := -1
	var dupErr error
	err = conn.Control(func(own uintptr) { fd, dupErr = unix.FcntlInt(own, unix.F_DUPFD_CLOEXEC, 3) })
	if err = errors.Join(err, dupErr); err != nil {
		return -1, err
	}
	return fd, unix.SetNonblock(fd, true)
}

// checkFlags reads back what the kernel made of the flags: older kernels accept what they do not know.
func (cfg *Config) checkFlags(fd int) error {
	ifr, err := unix.NewIfreq("")
	if err != nil {
		return err
	}
	if err := unix.IoctlIfreq(fd, unix.TUNGETIFF, ifr); err != nil {
		return fmt.Errorf("TUNGETIFF: %w", err)
	}
	if missing := cfg.flags() &^ ifr.Uint16(); missing != 0 {
		return &Unsupported{fmt.Sprintf("TUNSETIFF flag %#x", missing), "TUNGETIFF shows that it was ignored"}
	}
	return nil
}
