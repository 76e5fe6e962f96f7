package workload

import (
	"bytes"
	"encoding/json"
	"fmt"

	"nicemu/scenarios/format"
)

// iperf3Report is what we read of iperf3's --json document (its iperf_api.c). A
// client and a server write the same form, each with its own intervals.
type iperf3Report struct {
	Intervals []struct {
		Sum iperf3Sum `json:"sum"`
	} `json:"intervals"`
	End struct {
		Sum         *iperf3Sum `json:"sum"` // UDP: loss as the receiver counted it
		SumSent     *iperf3Sum `json:"sum_sent"`
		SumReceived *iperf3Sum `json:"sum_received"`
	} `json:"end"`
	Error string `json:"error"`
}

type iperf3Sum struct {
	Seconds       float64 `json:"seconds"`
	BitsPerSecond float64 `json:"bits_per_second"`
	Retransmits   *int64  `json:"retransmits"` // TCP senders on Linux
	LostPackets   *int64  `json:"lost_packets"`
	Omitted       bool    `json:"omitted"`
	Sender        bool    `json:"sender"`
}

// parseIperf3 reads a report. Text before and after the document is skipped:
// an interrupted iperf3 writes some.
func parseIperf3(text []byte) (*iperf3Report, error) {
	begin := bytes.IndexByte(text, '{')
	if begin < 0 {
		return nil, fmt.Errorf("iperf3 wrote no report")
	}
	var r iperf3Report
	if err := json.NewDecoder(bytes.NewReader(text[begin:])).Decode(&r); err != nil {
		return nil, fmt.Errorf("iperf3's report: %w", err)
	}
	return &r, nil
}

// fill puts the client's report, and the intervals of whoever received, into a result.
func (r *iperf3Report) fill(result *Result, server *iperf3Report, proto format.Proto) {
	if s := r.End.SumReceived; s != nil {
		result.GoodputBPS = &s.BitsPerSecond
	}
	if s := r.End.SumSent; s != nil && proto == format.TCP {
		result.Retransmits = s.Retransmits
	}
	if s := r.End.Sum; s != nil && proto == format.UDP {
		result.Lost = s.LostPackets
	}
	for _, side := range []*iperf3Report{server, r} {
		if side != nil && len(result.Intervals) == 0 {
			result.Intervals = side.received()
		}
	}
}

// received are the rates of a receiver's full seconds; none for a sender. The last,
// cut-off interval of a receiver is a few milliseconds long and says nothing.
func (r *iperf3Report) received() []float64 {
	const least = 0.5 // s
	var rates []float64
	for _, i := range r.Intervals {
		if !i.Sum.Sender && !i.Sum.Omitted && i.Sum.Seconds >= least {
			rates = append(rates, i.Sum.BitsPerSecond)
		}
	}
	return rates
}
