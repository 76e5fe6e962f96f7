package reproduce

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"sync"
)

// Figure is one published number.
type Figure struct {
	Experiment string `json:"experiment"`
	Condition  string `json:"condition"` // what was varied
	Metric     string `json:"metric"`
	Relation   string `json:"relation"` // = exact, ~ about, < less than, <= at most
	Value      any    `json:"value"`    // a number, or a list of them
	Unit       string `json:"unit"`
	Source     string `json:"source"` // the patch that states it
}

// Number is the value of a figure that is a single number.
func (f *Figure) Number() float64 {
	v, ok := f.Value.(float64)
	if !ok {
		panic(fmt.Sprintf("reproduce: %s | %s | %s is not one number", f.Experiment, f.Condition, f.Metric))
	}
	return v
}

//go:embed published.json
var publishedJSON []byte

// Figures are all published numbers, in the order of the patches.
var Figures = sync.OnceValue(func() []Figure {
	var doc struct {
		Sources map[string]string
		Figures []Figure
	}
	if err := json.Unmarshal(publishedJSON, &doc); err != nil {
		panic("reproduce: published.json: " + err.Error())
	}
	for i := range doc.Figures {
		doc.Figures[i].Source = doc.Sources[doc.Figures[i].Experiment]
	}
	return doc.Figures
})

var figureIndex = sync.OnceValue(func() map[[3]string]Figure {
	m := map[[3]string]Figure{}
	for _, f := range Figures() {
		m[[3]string{f.Experiment, f.Condition, f.Metric}] = f
	}
	return m
})

// Published finds a number by experiment, condition and metric.
func Published(experiment, condition, metric string) (Figure, bool) {
	f, ok := figureIndex()[[3]string{experiment, condition, metric}]
	return f, ok
}
