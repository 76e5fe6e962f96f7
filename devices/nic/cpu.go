package nic

import "nicemu/devices/engine"

// CPU is one host core: softirq work (interrupts and NAPI polls) runs in order
// and without preemption; application work runs when no softirq does, and is
// stretched by those that interrupt it. Work of cost zero runs at once.
type CPU struct {
	eng     *engine.Engine
	soft    engine.FIFO[work] // pending softirq work, the head runs
	softEnd engine.Timer
	app     engine.FIFO[work] // pending application work, the head runs
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
	if cost == 0 && c.soft.Len() == 0 {
		done()
		return
	}
	c.soft.Push(work{cost, done})
	if c.soft.Len() == 1 {
		c.pauseApp()
		c.eng.After(&c.softEnd, cost)
	}
}

// App runs done after cost of core time that no softirq took.
func (c *CPU) App(cost engine.Time, done func()) {
	if cost == 0 && c.soft.Len() == 0 && c.app.Len() == 0 {
		done()
		return
	}
	c.app.Push(work{cost, done})
	if c.app.Len() == 1 && c.soft.Len() == 0 {
		c.resumeApp()
	}
}

// Busy is the core time spent so far.
func (c *CPU) Busy() engine.Time {
	b := c.busy
	if c.soft.Len() > 0 {
		b += c.soft.Head().left - (c.eng.Due(&c.softEnd) - c.eng.Now())
	} else if c.app.Len() > 0 {
		b += c.eng.Now() - c.resumed
	}
	return b
}

func (c *CPU) softDone() {
	w := c.soft.Pop()
	c.busy += w.left
	w.done()
	switch {
	case c.soft.Len() > 0:
		c.eng.After(&c.softEnd, c.soft.Head().left)
	case c.app.Len() > 0 && !c.appEnd.Armed():
		c.resumeApp()
	}
}

func (c *CPU) resumeApp() {
	c.resumed = c.eng.Now()
	c.eng.After(&c.appEnd, c.app.Head().left)
}

func (c *CPU) pauseApp() {
	if !c.appEnd.Armed() {
		return
	}
	c.eng.Cancel(&c.appEnd)
	ran := c.eng.Now() - c.resumed
	c.app.Head().left -= ran
	c.busy += ran
}

func (c *CPU) appDone() {
	w := c.app.Pop()
	c.busy += w.left
	w.done()
	if c.app.Len() > 0 && c.soft.Len() == 0 && !c.appEnd.Armed() {
		c.resumeApp()
	}
}
