package lab

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"time"
)

// The guest's init and the host talk one way, over UML's serial line 0: messages
// of a kind byte, a length (uint32, little endian) and as many bytes.
type messageKind byte

const (
	msgStarted messageKind = 's' // the job runs; guest clock, 8 bytes, ns since boot
	msgBeat    messageKind = 'h' // a heartbeat; guest clock
	msgStdout  messageKind = 'o' // output of the job
	msgStderr  messageKind = 'e'
	msgExit    messageKind = 'x' // exit status, 4 bytes, then guest clock
	msgTimeout messageKind = 't' // the job reached VirtualLimit; guest clock
	msgFailed  messageKind = 'f' // init could not run the job: text
)

// maxMessage bounds a message's payload, in bytes. The serial line takes 4096 at
// a time.
const maxMessage = 4096

// messageWriter writes messages.
type messageWriter struct {
	w   io.Writer
	buf []byte
}

// send writes one message, or several if payload is longer than maxMessage.
func (m *messageWriter) send(kind messageKind, payload []byte) error {
	for {
		n := min(len(payload), maxMessage)
		m.buf = append(m.buf[:0], byte(kind))
		m.buf = binary.LittleEndian.AppendUint32(m.buf, uint32(n))
		m.buf = append(m.buf, payload[:n]...)
		if _, err := m.w.Write(m.buf); err != nil {
			return err
		}
		payload = payload[n:]
		if len(payload) == 0 {
			return nil
		}
	}
}

func clockPayload(t time.Duration) []byte {
	return binary.LittleEndian.AppendUint64(nil, uint64(t))
}

func exitPayload(status int, t time.Duration) []byte {
	return binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint32(nil, uint32(status)), uint64(t))
}

// message is one message as the host reads it.
type message struct {
	kind   messageKind
	data   []byte        // output or text; valid until the next read
	clock  time.Duration // guest clock, for the kinds that carry it
	status int           // exit status
}

var errProtocol = errors.New("malformed message from the guest")

// messageReader reads messages; its errors are io.EOF at a clean end, the
// reader's own, or errProtocol.
type messageReader struct {
	r   io.Reader
	buf [maxMessage]byte
}

func (m *messageReader) next() (message, error) {
	var head [5]byte
	if _, err := io.ReadFull(m.r, head[:]); err != nil {
		return message{}, err
	}
	msg := message{kind: messageKind(head[0])}
	n := binary.LittleEndian.Uint32(head[1:])
	if n > maxMessage {
		return message{}, fmt.Errorf("%w: %d bytes", errProtocol, n)
	}
	msg.data = m.buf[:n]
	if _, err := io.ReadFull(m.r, msg.data); err != nil {
		return message{}, err
	}
	switch msg.kind {
	case msgStdout, msgStderr, msgFailed:
		return msg, nil
	case msgExit:
		if n != 12 {
			return message{}, errProtocol
		}
		msg.status = int(int32(binary.LittleEndian.Uint32(msg.data)))
		msg.clock = time.Duration(binary.LittleEndian.Uint64(msg.data[4:]))
		return msg, nil
	case msgStarted, msgBeat, msgTimeout:
		if n != 8 {
			return message{}, errProtocol
		}
		msg.clock = time.Duration(binary.LittleEndian.Uint64(msg.data))
		return msg, nil
	}
	return message{}, fmt.Errorf("%w: kind %q", errProtocol, msg.kind)
}
