package dql

// Queue is a transmit queue under byte queue limits: the limit and the stop bit
// that the stack sets from it. It follows netdev_tx_sent_queue and
// netdev_tx_completed_queue of include/linux/netdevice.h.
type Queue struct {
	DQL
	// StackXOFF is __QUEUE_STATE_STACK_XOFF.
	StackXOFF bool
}

// Sent records bytes handed to the hardware and reports whether that set
// STACK_XOFF.
func (q *Queue) Sent(bytes uint32, jiffies uint64) (stopped bool) {
	q.Queued(bytes, jiffies)
	if q.Avail() >= 0 || q.StackXOFF {
		return false
	}
	q.StackXOFF = true
	return true
}

// Done records one cleaning round of bytes and reports whether that cleared
// STACK_XOFF, on which the stack schedules the qdisc.
func (q *Queue) Done(bytes uint32, jiffies uint64) (woken bool) {
	if bytes == 0 {
		return false
	}
	q.Completed(bytes, jiffies)
	if q.Avail() < 0 || !q.StackXOFF {
		return false
	}
	q.StackXOFF = false
	return true
}

// ResetQueue forgets everything in flight: netdev_tx_reset_queue.
func (q *Queue) ResetQueue(jiffies uint64) {
	q.StackXOFF = false
	q.Reset(jiffies)
}
