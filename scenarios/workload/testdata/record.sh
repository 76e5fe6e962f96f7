#!/bin/sh
# Records what iperf3 and ping write, over loopback; the files beside this were
# made by it with iperf3 3.12 and ping of iputils 20221126.
set -eu
cd "$(dirname "$0")"

# pair NAME SERVER-ARGS CLIENT-ARGS…: NAME-client.json and NAME-server.json.
pair() {
	name=$1
	shift
	iperf3 --server --one-off --json --port 5299 >"$name-server.json" &
	until grep -qi ':14B3 .* 0A ' /proc/net/tcp /proc/net/tcp6; do :; done
	iperf3 --client 127.0.0.1 --port 5299 --json --time 2 "$@" >"$name-client.json"
	wait
}

pair tcp --parallel 2
pair udp --udp --bitrate 20M --length 1448 --parallel 2
pair udp-lossy --udp --bitrate 0 --length 65000 --window 8K
pair reverse --reverse

iperf3 --client 127.0.0.1 --port 1 --json >refused-client.json || :

LC_ALL=C ping -n -c 5 -i 0.05 -W 1 127.0.0.1 >ping.txt
# Nobody reads from the TAP, so nothing answers.
unshare --net sh -c '
	ip tuntap add dev t0 mode tap
	ip link set t0 up
	ip addr add 198.18.0.1/24 dev t0
	ip neigh add 198.18.0.2 lladdr 02:00:00:00:00:02 dev t0
	LC_ALL=C ping -n -c 3 -i 0.05 -W 1 198.18.0.2' >ping-lost.txt || :
