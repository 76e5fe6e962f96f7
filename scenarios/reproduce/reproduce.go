// Package reproduce runs, in virtual time, the experiments behind five
// published kernel patches on the card models and sets the models' figures
// beside the published ones.
//
// What is fitted to a published figure is listed by [Fitted]; every row says
// whether it was, so that the others are predictions. It leaves out what only
// real hosts can give: receivers, caches, other load.
package reproduce

import (
	"fmt"
	"math"
	"runtime"
	"slices"
	"sync"

	"nicemu/devices"
	"nicemu/devices/engine"
	"nicemu/devices/nic"
	"nicemu/replay/qdisc"
	"nicemu/replay/stack"
)

// Row is one figure: published, modelled and, where somebody ran it, live.
// Errors and tolerance are relative: model/published - 1.
type Row struct {
	Experiment string   `json:"experiment"`
	Condition  string   `json:"condition"`
	Metric     string   `json:"metric"`
	Unit       string   `json:"unit"`
	Published  *float64 `json:"published"` // nil: a prediction that nobody has published
	Model      float64  `json:"model"`
	Live       *float64 `json:"live"`
	ModelError *float64 `json:"model_error"`
	LiveError  *float64 `json:"live_error"`
	Tolerance  float64  `json:"tolerance"` // 0 where the published figure is a bound
	Fitted     bool     `json:"fitted"`    // a parameter was chosen so that this figure comes out
	OK         bool     `json:"ok"`
	Why        string   `json:"why"`

	relation string // of the published figure: = ~ < <=
}

// KV overrides a knob of the experiment's card.
type KV struct{ Key, Value string }

// Experiment is one published measurement.
type Experiment struct {
	Name    string // igb-qav, mana-bql, i40e-txd, tsnep-irq or ixgbe-ring
	Device  string
	Summary string
	Varied  []string // knobs that the experiment itself turns from row to row
	Fitted  []Parameter
	// Run models the experiment. Overrides go on top of its own settings.
	Run func(overrides []KV, seed uint64) ([]Row, error)
}

// Parameter is a value that was chosen so that a published figure comes out.
// Each has a meaning of its own; everything else is given by driver, datasheet
// or standard.
type Parameter struct {
	Name     string `json:"name"`
	Value    string `json:"value"` // with its unit
	Meaning  string `json:"meaning"`
	FittedTo string `json:"fitted_to"`
}

// compare makes the row of a published figure, which must exist: model is in
// its unit.
func compare(experiment, condition, metric string, model, tolerance float64) Row {
	f, ok := Published(experiment, condition, metric)
	if !ok {
		panic(fmt.Sprintf("reproduce: no published figure %s | %s | %s", experiment, condition, metric))
	}
	return row(f, model, tolerance)
}

// derive makes the row of a number that follows from published figures.
func derive(experiment, condition, metric, unit string, published, model, tolerance float64) Row {
	return row(Figure{experiment, condition, metric, "=", published, unit, ""}, model, tolerance)
}

func row(f Figure, model, tolerance float64) Row {
	published := f.Number()
	r := Row{
		Experiment: f.Experiment, Condition: f.Condition, Metric: f.Metric, Unit: f.Unit,
		Published: &published, Model: model, Tolerance: tolerance, relation: f.Relation,
	}
	r.ModelError = r.error(model)
	r.OK = r.within(model, tolerance)
	return r
}

// predict makes the row of a figure that nobody has published.
func predict(experiment, condition, metric, unit string, model float64, why string) Row {
	return Row{Experiment: experiment, Condition: condition, Metric: metric, Unit: unit, Model: model, OK: true, Why: why}
}

// because says why a row is as it is.
func (r Row) because(why string) Row { r.Why = why; return r }

// fit marks a row that a parameter was fitted to.
func (r Row) fit() Row { r.Fitted = true; return r }

// WithLive adds what a live run measured; it is as good as the model's figure
// if it is within a tolerance of its own.
func (r Row) WithLive(v, tolerance float64) Row {
	r.Live = &v
	if r.Published != nil {
		r.LiveError = r.error(v)
		r.OK = r.OK && r.within(v, tolerance)
	}
	return r
}

// error is relative to the published figure; nil if that is zero.
func (r *Row) error(v float64) *float64 {
	if *r.Published == 0 {
		return nil
	}
	e := v / *r.Published - 1
	return &e
}

func (r *Row) within(v, tolerance float64) bool {
	switch p := *r.Published; r.relation {
	case "<":
		return v < p
	case "<=":
		return v <= p
	default:
		return math.Abs(v-p) <= tolerance*math.Abs(p)
	}
}

func pfifo(int) qdisc.Qdisc   { return qdisc.NewPFIFO(1000) }
func fqCodel(int) qdisc.Qdisc { return qdisc.NewFQCodel(qdisc.FQCodelConfig{}) }

// build makes the experiment's card under a kernel, with its own settings and,
// on top of them, the user's.
func build(e *engine.Engine, root func(int) qdisc.Qdisc, name string, own, overrides []KV) (*stack.Stack, error) {
	d, err := devices.New(name)
	if err != nil {
		return nil, err
	}
	for _, list := range [2][]KV{own, overrides} {
		for _, kv := range list {
			if err := d.Set(kv.Key, kv.Value); err != nil {
				return nil, err
			}
		}
	}
	return stack.New(e, nic.NewCPU(e), d, root)
}

// Run models the given experiments on as many cores as there are and returns
// their rows in the given order. The result does not depend on the cores. An
// override of what an experiment varies is an error: its rows would be one.
func Run(experiments []Experiment, overrides []KV, seed uint64) ([]Row, error) {
	for i := range experiments {
		if err := experiments[i].check(overrides); err != nil {
			return nil, err
		}
	}
	rows := make([][]Row, len(experiments))
	err := parallel(len(experiments), func(i int) (err error) {
		if rows[i], err = experiments[i].Run(overrides, seed); err != nil {
			err = fmt.Errorf("%s: %w", experiments[i].Name, err)
		}
		return err
	})
	var all []Row
	for _, r := range rows {
		all = append(all, r...)
	}
	return all, err
}

// check refuses overrides of what the experiment varies.
func (x *Experiment) check(overrides []KV) error {
	for _, kv := range overrides {
		if slices.Contains(x.Varied, kv.Key) {
			return fmt.Errorf("%s: the experiment varies %s itself, so that its rows would all be of %s; expected another knob, or `nicemu simulate --device %s --set %s=%s`",
				x.Name, kv.Key, kv.Value, x.Device, kv.Key, kv.Value)
		}
	}
	return nil
}

// cores bounds the model runs under way.
var cores = make(chan struct{}, runtime.GOMAXPROCS(0))

// parallel runs do for 0 to n-1, each on an engine of its own, and returns the
// error of the lowest number. Calls may nest: only [onCore] takes a core.
func parallel(n int, do func(i int) error) error {
	errs := make([]error, n)
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() { errs[i] = do(i) })
	}
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// onCore runs one model run when a core is free for it.
func onCore(run func() error) error {
	cores <- struct{}{}
	defer func() { <-cores }()
	return run()
}
