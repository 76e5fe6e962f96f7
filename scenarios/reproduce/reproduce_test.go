package reproduce

import (
	"bytes"
	"encoding/json"
	"os"
	"testing"
)

func TestModelsGiveThePublishedFigures(t *testing.T) {
	rows, err := Run(All(), nil, 1)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range rows {
		if !r.OK {
			t.Errorf("%s | %s | %s: published %v, model %v", r.Experiment, r.Condition, r.Metric, *r.Published, r.Model)
		}
	}
	if testing.Verbose() {
		WriteTable(os.Stderr, rows)
		WriteFitted(os.Stderr, Fitted())
	}
	again, err := Run(All(), nil, 1)
	if err != nil {
		t.Fatal(err)
	}
	a, _ := json.Marshal(rows)
	b, _ := json.Marshal(again)
	if !bytes.Equal(a, b) {
		t.Error("two runs differ")
	}
}

func TestAtMostTenParametersAreFitted(t *testing.T) {
	if n := len(Fitted()); n > 10 {
		t.Errorf("%d fitted parameters", n)
	}
}

func TestEveryPublishedFigureIsUnique(t *testing.T) {
	if n, m := len(Figures()), len(figureIndex()); n != m {
		t.Errorf("%d figures, %d keys", n, m)
	}
}
