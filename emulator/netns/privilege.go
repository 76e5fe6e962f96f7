package netns

import (
	"errors"

	"golang.org/x/sys/unix"
)

// NeedsPrivilege says that the process may not make namespaces or network devices.
type NeedsPrivilege struct {
	// Missing names the capability.
	Missing string
}

func (e *NeedsPrivilege) Error() string {
	return "no " + e.Missing + ": making network namespaces and devices needs root, so run nicemu with sudo (in a container: --privileged)"
}

// CheckPrivilege reports a *NeedsPrivilege if the process lacks CAP_NET_ADMIN, CAP_NET_RAW or CAP_SYS_ADMIN, which
// capabilities(7) asks for TAP devices, packet sockets, and setns and mount.
func CheckPrivilege() error {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&header, &data[0]); err != nil {
		return err
	}
	for _, c := range []struct {
		bit  uint
		name string
	}{
		{unix.CAP_NET_ADMIN, "CAP_NET_ADMIN"},
		{unix.CAP_NET_RAW, "CAP_NET_RAW"},
		{unix.CAP_SYS_ADMIN, "CAP_SYS_ADMIN"},
	} {
		if data[c.bit/32].Effective&(1<<(c.bit%32)) == 0 {
			return &NeedsPrivilege{Missing: c.name}
		}
	}
	return nil
}

// privileged turns the kernel's refusal into a *NeedsPrivilege: the capabilities may be there, but not in the user
// namespace that owns the network.
func privileged(err error) error {
	if errors.Is(err, unix.EPERM) || errors.Is(err, unix.EACCES) {
		return &NeedsPrivilege{Missing: "permission from the kernel (" + err.Error() + ")"}
	}
	return err
}
