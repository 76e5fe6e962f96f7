package capture

import "slices"

// Policy says what the reader does with packets that are out of the ordinary.
const Policy = "truncated: delivered with the original length; longer than the snap length: delivered whole; " +
	"original length below the captured: raised to it; backward time: delivered in file order; no time: that of the packet before; " +
	"offload artefacts: delivered as captured; FCS: removed; refused: counted by reason, not delivered"

// Stats is what a file held, up to the last call of Next. Records = Packets + the sum of Refused, for the file and for each interface.
// Bytes are those of Ethernet frames without FCS.
type Stats struct {
	File     string `json:"file"`
	Format   string `json:"format"` // such as "pcap, ns, big-endian, gzip"
	Sections int    `json:"sections"`

	Records  uint64 `json:"records"`
	Packets  uint64 `json:"packets"`
	Bytes    uint64 `json:"bytes"`    // original length
	Captured uint64 `json:"captured"` // bytes present in the file

	Truncated    uint64 `json:"truncated"`       // packets of which the capture kept less than there was
	Oversize     uint64 `json:"oversize"`        // records longer than the declared snap length
	LengthRaised uint64 `json:"length_raised"`   // records with an original length below the captured one
	ZeroLength   uint64 `json:"zero_length"`     // records without a byte of data
	Untimed      uint64 `json:"untimed"`         // packets without a time
	Backward     uint64 `json:"backward"`        // packets with a time before that of the packet ahead of them
	BackwardMax  uint64 `json:"backward_max_ns"` // the largest such step
	OverMTU      uint64 `json:"over_mtu"`        // packets larger than the MTU: GSO or GRO has been at work, or jumbo frames
	IPLengthZero uint64 `json:"ip_length_zero"`  // packets whose IP length is 0: captured above TSO
	SkippedBlock uint64 `json:"skipped_blocks"`  // pcapng blocks that hold no packet and no description (names, keys, custom …)
	CaptureDrops uint64 `json:"capture_drops"`   // packets the capturing side says it lost (interface statistics, packet blocks)

	Refused    map[string]uint64 `json:"refused"` // records that are no Ethernet frame, by reason
	Interfaces []InterfaceStats  `json:"interfaces"`
	Policy     string            `json:"policy"`

	refused [refusals]uint64
}

// InterfaceStats is one interface of a file.
type InterfaceStats struct {
	Section      int      `json:"section"`
	ID           int      `json:"id"`             // index within the section
	Name         string   `json:"name,omitempty"` // if_name, at most 255 bytes of it
	LinkType     LinkType `json:"link_type"`
	LinkName     string   `json:"link_name"`
	SnapLen      uint32   `json:"snaplen"`    // 0: unlimited
	Resolution   string   `json:"resolution"` // of its times, in seconds: "10^-6", "2^-20"
	Packets      uint64   `json:"packets"`
	Bytes        uint64   `json:"bytes"`
	Refused      uint64   `json:"refused"`
	CaptureDrops uint64   `json:"capture_drops"`

	offset int64 // of its description
}

// refusal is why a record is no Ethernet frame.
type refusal int

const (
	accepted refusal = iota
	refusedLinkType
	refusedRunt
	refusedCut
	refusedProtocol
	refusedNoData
	refusedEncrypted
	refusedAggregate
	refusedFCS
	refusals
)

var refusalNames = [refusals]string{
	refusedLinkType:  "link type cannot be converted",
	refusedRunt:      "shorter than its link header",
	refusedCut:       "captured bytes end in the link header",
	refusedProtocol:  "protocol has no EtherType",
	refusedNoData:    "802.11 frame without data",
	refusedEncrypted: "802.11 frame encrypted",
	refusedAggregate: "802.11 aggregate or fragment",
	refusedFCS:       "802.11 frame with a bad FCS",
}

// Stats returns the counts so far.
func (r *Reader) Stats() Stats {
	s := r.stats
	s.File, s.Policy, s.Format = r.name, Policy, r.format()
	s.Refused = make(map[string]uint64)
	for why, n := range s.refused {
		if n > 0 {
			s.Refused[refusalNames[why]] = n
		}
	}
	s.Interfaces = slices.Grow(s.Interfaces, len(r.ifaces))
	for _, i := range r.ifaces {
		i.LinkName = i.LinkType.Name()
		s.CaptureDrops += i.CaptureDrops
		s.Interfaces = append(s.Interfaces, i.InterfaceStats)
	}
	return s
}

func (r *Reader) format() string {
	f := "pcapng"
	if !r.ng {
		f = "pcap, us"
		if r.nano {
			f = "pcap, ns"
		}
	}
	if r.bigEndian {
		f += ", big-endian"
	} else {
		f += ", little-endian"
	}
	if r.gzip {
		f += ", gzip"
	}
	return f
}
