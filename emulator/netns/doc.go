// Package netns makes, enters and removes the network namespaces an emulated card is plugged into.
//
// It follows iproute2: a namespace has a name and is a bind mount in /run/netns, so that `ip netns` sees it and
// `ip netns exec` enters it. Every name starts with Prefix; nothing else is ever removed.
//
// A process that makes namespaces holds one run file in RunDir: the file is locked (flock) for as long as the process
// lives and lists the namespaces it made, each written before the namespace exists. So Clean can tell what a dead
// process left behind from what a living one uses, however the first one died.
//
// Left out: mount, user and PID namespaces, and namespaces without a name.
package netns
