package scenarios

import "fmt"

// KernelError says that the kernel lacks or refused what a scenario needs, and
// what to do about it.
type KernelError struct {
	What   string // what was tried
	Remedy string
	Err    error // may be nil
}

func (e *KernelError) Error() string {
	s := e.What
	if e.Err != nil {
		s = fmt.Sprintf("%s: %v", s, e.Err)
	}
	if e.Remedy != "" {
		s += "; " + e.Remedy
	}
	return s
}

func (e *KernelError) Unwrap() error { return e.Err }
