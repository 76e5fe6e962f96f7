package netns

import "testing"

func TestOnlyWhatADeadRunMadeAndNoLivingRunClaimsIsLeftBehind(t *testing.T) {
	dead := owner{spaces: []string{"nicemu-a", "nicemu-b"}}
	alive := owner{alive: true, spaces: []string{"nicemu-b", "nicemu-c"}}
	for name, want := range map[string]bool{
		"nicemu-a":       true,
		"nicemu-b":       false, // a living run took the name over
		"nicemu-c":       false,
		"nicemu-unknown": false,
	} {
		if got := leftBehind(name, []owner{dead, alive}); got != want {
			t.Errorf("%s left behind: %t, want %t", name, got, want)
		}
	}
}

func TestNamesThatCouldLeaveTheDirectoryAreRefused(t *testing.T) {
	for _, name := range []string{"../etc", "a b", "a/b", "x\n", string(make([]byte, 80))} {
		if _, err := Create(name); err == nil {
			t.Errorf("Create(%q) made a namespace", name)
		}
	}
}
