package liveplay

import (
	"testing"

	"nicemu/devices/nic"
	"nicemu/emulator/tap"
	"nicemu/replay/capture"
	"nicemu/replay/capture/capturetest"

	"github.com/google/go-cmp/cmp"
	"github.com/google/gopacket"
	"github.com/google/gopacket/layers"
)

// udp6 is an Ethernet frame with UDP over IPv6.
func udp6(n int) []byte {
	ip := &layers.IPv6{Version: 6, NextHeader: layers.IPProtocolUDP, HopLimit: 64, SrcIP: make([]byte, 16), DstIP: make([]byte, 16)}
	ip.SrcIP[15], ip.DstIP[15] = 1, 2
	udp := &layers.UDP{SrcPort: 1000, DstPort: 2000}
	udp.SetNetworkLayerForChecksum(ip)
	ether := &layers.Ethernet{SrcMAC: make([]byte, 6), DstMAC: make([]byte, 6), EthernetType: layers.EthernetTypeIPv6}
	return capturetest.Frame(ether, ip, udp, gopacket.Payload(capturetest.Payload(n-62)))
}

// A packet whose checksum the kernel finishes is the packet with the right
// lengths and checksums, whatever the capture had there.
func TestOffloadedPacketIsCompletedByTheKernel(t *testing.T) {
	for name, c := range map[string]struct {
		frame   []byte
		gso     uint8
		lengths []int // of IP and UDP, and of checksums
	}{
		"TCP":      {capturetest.TCP(14654), tap.GSOTCPv4 | tap.GSOECN, []int{16, 17, 24, 25, 50, 51}},
		"UDP":      {capturetest.UDP(9000), tap.GSOUDP, []int{16, 17, 24, 25, 38, 39, 40, 41}},
		"UDP IPv6": {udp6(9000), tap.GSOUDP, []int{18, 19, 58, 59, 60, 61}},
	} {
		t.Run(name, func(t *testing.T) {
			want := append([]byte(nil), c.frame...)
			for _, at := range c.lengths {
				c.frame[at] = 0x5a
			}
			p := capture.ParseFields(want)
			f := &nic.Frame{}
			f.GSO(len(want), p.HeaderLen, 1400)
			h := offload(c.frame, f)
			if h.GSOType != c.gso || h.GSOSize != 1400 || h.HdrLen != uint16(p.HeaderLen) {
				t.Errorf("%+v", h)
			}
			if err := h.CompleteChecksum(c.frame); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want[:80], c.frame[:80]); diff != "" {
				t.Error(diff)
			}
		})
	}
}
