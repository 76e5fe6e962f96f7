package nic

import "nicemu/devices/engine"

// CPU is one host core: softirq work (interrupts and NAPI polls) runs in order
// and without preemption; application work runs when no softirq does, and is
// stretched by those that interrupt it. Work of cost zero runs at once.
type CPU struct {
	eng     *engine.Engine
	soft    workRing // pending softirq work, the head runs
	softEnd engine.Timer
	app     workRing // pending application work, the head runs
	appEnd  engine.Timer
	resumed engine.Time // when the head of app last got the core
	busy    engine.Time // core time spent
}

type work struct {
	left engine.Time
	done func()
}

// NewCPU returns an idle core.
func NewCPU(e *engine.Engine) *CPU {
	c := &CPU{eng: e}
	e.Init(&c.softEnd, c.softDone)
	e.Init(&c.appEnd, c.appDone)
	return c
}

// Softirq runs done after cost of core time, ahead of any application work.
func (c *CPU) Softirq(cost engine.Time, done func()) {
	if cost == 0 && c.soft.n == 0 {
		done()
		return
	}
	c.soft.push(work{cost, done})
	if c.soft.n == 1 {
		c.pauseApp()
		c.eng.After(&c.softEnd, cost)
	}
}

// App runs done after cost of core time that no softirq took.
func (c *CPU) App(cost engine.Time, done func()) {
	if cost == 0 && c.soft.n == 0 && c.app.n == 0 {
		done()
		return
	}
	c.app.push(work{cost, done})
	if c.app.n == 1 && c.soft.n == 0 {
		c.resumeApp()
	}
}

// Busy is the core time spent so far.
func (c *CPU) Busy() engine.Time {
	b := c.busy
	if c.soft.n > 0 {
		b += c.soft.head().left - (c.eng.Due(&c.softEnd) - c.eng.Now())
	} else if c.app.n > 0 {
		b += c.eng.Now() - c.resumed
	}
	return b
}

func (c *CPU) softDone() {
	w := c.soft.pop()
	c.busy += w.left
	w.done()
	switch {
	case c.soft.n > 0:
		c.eng.After(&c.softEnd, c.soft.head().left)
	case c.app.n > 0 && !c.appEnd.Armed():
		c.resumeApp()
	}
}

func (c *CPU) resumeApp() {
	c.resumed = c.eng.Now()
	c.eng.After(&c.appEnd, c.app.head().left)
}

func (c *CPU) pauseApp() {
	if !c.appEnd.Armed() {
		return
	}
	c.eng.Cancel(&c.appEnd)
	ran := c.eng.Now() - c.resumed
	c.app.head().left -= ran
	c.busy += ran
}

func (c *CPU) appDone() {
	w := c.app.pop()
	c.busy += w.left
	w.done()
	if c.app.n > 0 && c.soft.n == 0 && !c.appEnd.Armed() {
		c.resumeApp()
	}
}

// workRing is a queue that grows to its high-water mark and then stays.
type workRing struct {
	buf      []work
	first, n int
}

func (r *workRing) head() *work { return &r.buf[r.first] }

func (r *workRing) push(w work) {
	if r.n == len(r.buf) {
		grown := make([]work, max(8, 2*len(r.buf)))
		for i := range r.n {
			grown[i] = r.buf[(r.first+i)%len(r.buf)]
		}
		r.buf, r.first = grown, 0
	}
	r.buf[(r.first+r.n)%len(r.buf)] = w
	r.n++
}

func (r *workRing) pop() work {
	w := r.buf[r.first]
	r.buf[r.first] = work{}
	r.first = (r.first + 1) % len(r.buf)
	r.n--
	return w
}
