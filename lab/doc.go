// Package lab makes and boots the lab kernel: Linux 6.12 as a User Mode Linux
// program (arch/um), so that fq_codel, taprio, etf and the other genuine qdiscs
// run on hosts whose own kernel lacks them, without root, without KVM, and, if
// asked, in virtual time (arch/um/kernel/time.c, time-travel=inf-cpu).
//
// [Build] compiles Debian's linux-source-6.12 with the configuration in
// kernel.config and the changes in kernel.patch. [Run] boots the result over
// hostfs with a Go program as its init and runs one command in it: the guest
// sees the host's files, what it writes stays in its memory, except in one job
// directory. [Shell] does the same on the terminal. The program that serves as
// init calls [Init] first in main.
//
// Left out: other kernel versions and architectures, modules, disks, any link
// between the guest's network and the host's, more than one processor (UML 6.12
// has one).
package lab
