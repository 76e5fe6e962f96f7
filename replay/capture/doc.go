// Package capture reads and writes packet captures: pcap and pcapng in, pcapng out, every packet as an Ethernet frame.
//
// It follows draft-ietf-opsawg-pcap and draft-ietf-opsawg-pcapng for the files, the tcpdump.org list of LINKTYPE_ values for what is inside them,
// and does what libpcap and Wireshark do where the documents are silent. The format is recognised by content, never by suffix; gzip is unpacked
// on the way. Reading is streaming and bounded: every length is checked before it is believed, and memory does not grow with the file.
//
// Of google/gopacket it uses pcapgo to write section and interface blocks and layers for protocol numbers. It frames records itself, because
// pcapgo's readers
//   - allocate what a record or a snap length asks for (4 GB from 80 bytes) and slice options without looking at their length,
//   - fail on a record longer than the file's snap length, and on one longer than its own original length,
//   - skip packets of a second link type unless told otherwise, and round binary resolutions,
//   - report the resolution of nanosecond files as microseconds, and keep link types in 8 bits, so that SLL2 (276) reads as 20,
//   - know no file offset, so that an error cannot say where;
//
// and because pcapgo's writer has no packet comments and names the host it runs on.
//
// Left out: writing pcap, name resolution and decryption blocks, packet flags and hashes, pcap before version 2.4, reassembly of 802.11
// aggregates and fragments. What is left out or refused is counted in Stats, never passed over in silence.
package capture
