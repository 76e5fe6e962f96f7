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
// Repeatable: with virtual time, a Seed and a Clock, two runs of a command on one
// machine are the same to the nanosecond of guest time. They draw the same random
// numbers, ports and hash keys, and their programs run in the same order. Not
// repeatable, and kept out of what is compared: wall times (wall_s in results), and
// whatever a command reads of the host: files, their dates, the processor's name.
// After a change of the kernel, of nicemu or of the programs run, figures move by
// what chance they hold (hashes, where a packet stood when another came): each look
// at the clock moves it by 256 ns. A program that spins is given 64 looks, then
// sleeps for 1 to 100 us a look (kernel.patch).
//
// Left out: other kernel versions and architectures, modules, disks, any link
// between the guest's network and the host's, more than one processor (UML 6.12
// has one).
package lab
