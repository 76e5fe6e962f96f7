package gate

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"nicemu/emulator/netns"
	"nicemu/emulator/tap"
)

// ProbeQdiscs tries each kind of qdisc on a TAP in a namespace of its own, which loads the kernel's module if there is
// one. The result has nil for a kind the kernel has, else a *tap.Unsupported; err is set if it could not try.
func ProbeQdiscs(kinds []string) (has map[string]error, err error) {
	ns, err := netns.Create(fmt.Sprintf("probe-%d", os.Getpid()))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, ns.Delete()) }()
	port, err := tap.Open(ns, tap.Config{Name: "probe", Queues: 2})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, port.Close()) }()
	t, err := dialTC(ns, port.Ifindex())
	if err != nil {
		return nil, err
	}
	defer t.close()
	has = make(map[string]error, len(kinds))
	for _, kind := range kinds {
		// Most kinds refuse to be made without options, but only after the kernel found them.
		err := t.send(unix.RTM_NEWQDISC, replace, object{handle: netlink.MakeHandle(1, 0), parent: netlink.HANDLE_ROOT, kind: kind})
		if errors.Is(err, unix.ENOENT) {
			has[kind] = &tap.Unsupported{
				Feature: "qdisc " + kind,
				Since:   "install the module sch_" + kind + " or build the kernel with CONFIG_NET_SCH_" + strings.ToUpper(kind),
			}
			continue
		}
		has[kind] = nil
		t.send(unix.RTM_DELQDISC, noFlags, object{parent: netlink.HANDLE_ROOT})
	}
	return has, nil
}
