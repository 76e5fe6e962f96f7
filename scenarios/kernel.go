package scenarios

import (
	"fmt"
	"slices"
	"strings"

	"nicemu/emulator"
	"nicemu/emulator/gate"
	"nicemu/emulator/netns"
	"nicemu/lab"
	"nicemu/replay/report"
	"nicemu/scenarios/format"

	"golang.org/x/sys/unix"
)

// ChooseKernel says where s is to run. Auto is this host if the user may make
// namespaces and TAPs in it and its kernel has every qdisc that the scenario
// names and the back-pressure needs; else the lab. Release is that of the host.
// A qdisc that the lab would have to have, and has not, is a format.Errors.
func ChooseKernel(s *format.Scenario, want format.Kernel, way emulator.Way) (report.Kernel, error) {
	k := report.Kernel{Mode: string(want), Release: release(), Reason: "asked for"}
	switch want {
	case format.KernelLab:
		return k, checkLab(s, "")
	case format.KernelHost, format.KernelModel:
		return k, nil
	}
	lack, err := hostLacks(s, way)
	if err != nil {
		return k, err
	}
	if lack == "" {
		k.Mode, k.Reason = string(format.KernelHost), "it has what the scenario needs"
	} else {
		k.Mode, k.Reason = string(format.KernelLab), "this host "+lack
		err = checkLab(s, ", and this host "+lack)
	}
	return k, err
}

// checkLab finds qdiscs that the lab kernel has not, either.
func checkLab(s *format.Scenario, either string) error {
	for _, p := range s.Cases() {
		for i := range p.Scenario.NICs {
			for j, args := range p.Scenario.NICs[i].TCCommands() {
				if kind := qdiscKind(args); kind != "" && !lab.HasQdisc(kind) {
					return p.Scenario.Fault(fmt.Sprintf("nic[%d].tc[%d]", i, j),
						fmt.Sprintf("unknown qdisc %q: the lab kernel has none of that kind%s", kind, either), "one of "+strings.Join(lab.Qdiscs(), ", "))
				}
			}
		}
	}
	return nil
}

// HostKernel is the kernel of this machine.
func HostKernel(reason string) report.Kernel {
	return report.Kernel{Mode: string(format.KernelHost), Release: release(), Reason: reason}
}

func release() string {
	var u unix.Utsname
	unix.Uname(&u) // fails only on a bad pointer
	return unix.ByteSliceToString(u.Release[:])
}

// hostLacks is what keeps s from running in the host's kernel; "" if nothing
// does.
func hostLacks(s *format.Scenario, way emulator.Way) (string, error) {
	if netns.CheckPrivilege() != nil {
		return "gives this user no right to make network namespaces", nil
	}
	way, err := emulator.ChooseWay(way)
	if err != nil {
		return "has no TAP devices of the kind: " + err.Error(), nil
	}
	kinds := qdiscKinds(s)
	if way == emulator.Gate {
		kinds = append(kinds, "hfsc", "tbf", "prio", "htb")
	}
	has, err := gate.ProbeQdiscs(kinds)
	if err != nil {
		return "", fmt.Errorf("looking which qdiscs this kernel has: %w", err)
	}
	var missing []string
	for _, kind := range qdiscKinds(s) {
		if has[kind] != nil {
			missing = append(missing, kind)
		}
	}
	if way == emulator.Gate && (has["hfsc"] != nil && has["tbf"] != nil || has["prio"] != nil && has["htb"] != nil) {
		missing = append(missing, "hfsc or tbf, prio or htb, which back-pressure needs")
	}
	if missing == nil {
		return "", nil
	}
	return fmt.Sprintf("(kernel %s) has no %s", release(), strings.Join(missing, ", no ")), nil
}

// qdiscKinds are the qdiscs that the tc lines of s, in any case, name; sorted.
func qdiscKinds(s *format.Scenario) []string {
	var kinds []string
	for _, p := range s.Cases() {
		for i := range p.Scenario.NICs {
			for _, args := range p.Scenario.NICs[i].TCCommands() {
				if kind := qdiscKind(args); kind != "" {
					kinds = append(kinds, kind)
				}
			}
		}
	}
	slices.Sort(kinds)
	return slices.Compact(kinds)
}

// tcWords are the words that may come before the kind in `tc qdisc add`, and how
// many arguments each has (iproute2, tc/tc_qdisc.c, tc_stab.c).
var tcWords = map[string]int{
	"dev": 1, "parent": 1, "handle": 1, "root": 0, "estimator": 2, "ingress_block": 1, "egress_block": 1,
	"stab": 0, "mtu": 1, "mpu": 1, "tsize": 1, "overhead": 1, "linklayer": 1,
}

// qdiscKind is the kind that a tc command makes or changes; "" if it does neither.
func qdiscKind(args []string) string {
	if len(args) < 2 || args[0] != "qdisc" || !slices.Contains([]string{"add", "replace", "change"}, args[1]) {
		return ""
	}
	for i := 2; i < len(args); i++ {
		n, before := tcWords[args[i]]
		if !before {
			return args[i]
		}
		i += n
	}
	return ""
}
