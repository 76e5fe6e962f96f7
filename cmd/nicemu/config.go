package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/pelletier/go-toml/v2"
	"github.com/spf13/cobra"
	"github.com/spf13/viper"
)

// config is what config.toml may say: defaults for the command line.
type config struct {
	Kernel       string   `toml:"kernel"`
	Backpressure string   `toml:"backpressure"`
	ScenarioPath []string `toml:"scenario_path"`
	Progress     string   `toml:"progress"`

	file string // that was read, if any
}

// inputs is the file that was read, as a list.
func (c *config) inputs() []string {
	if c.file == "" {
		return nil
	}
	return []string{c.file}
}

// loadConfig merges, the later winning: built-in defaults, the configuration
// file, NICEMU_… variables, flags that were given.
func loadConfig(cmd *cobra.Command) (*config, error) {
	v := viper.New()
	v.SetEnvPrefix("NICEMU")
	v.AutomaticEnv()
	v.SetDefault("kernel", "auto")
	v.SetDefault("backpressure", "auto")
	v.SetDefault("scenario_path", []string{})
	v.SetDefault("progress", "auto")
	v.SetConfigName("config")
	v.SetConfigType("toml")
	if path, _ := cmd.Flags().GetString("config"); path != "" {
		v.SetConfigFile(path)
	} else {
		v.AddConfigPath(".")
		if dir, err := os.UserConfigDir(); err == nil {
			v.AddConfigPath(filepath.Join(dir, "nicemu"))
		}
		v.AddConfigPath("/etc/nicemu")
	}
	var missing viper.ConfigFileNotFoundError
	err := v.ReadInConfig()
	if err != nil && !errors.As(err, &missing) {
		if v.ConfigFileUsed() == "" {
			return nil, err
		}
	}
	var read string
	if file := v.ConfigFileUsed(); file != "" && !errors.As(err, &missing) {
		if err := checkConfigFile(file); err != nil {
			return nil, err
		}
		read = file
	}
	for _, name := range []string{"kernel", "backpressure"} {
		if f := cmd.Flags().Lookup(name); f != nil && f.Changed {
			v.Set(name, f.Value.String())
		}
	}
	c := &config{
		Kernel:       v.GetString("kernel"),
		Backpressure: v.GetString("backpressure"),
		ScenarioPath: v.GetStringSlice("scenario_path"),
		Progress:     v.GetString("progress"),
		file:         read,
	}
	return c, c.check()
}

// checkConfigFile decodes the file strictly: viper keeps no positions and lets
// unknown keys pass.
func checkConfigFile(path string) error {
	data, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	dec := toml.NewDecoder(bytes.NewReader(data)).DisallowUnknownFields()
	err = dec.Decode(&config{})
	var unknown *toml.StrictMissingError
	if errors.As(err, &unknown) {
		e := unknown.Errors[0]
		row, col := e.Position()
		return fmt.Errorf("%s:%d:%d: unknown key %q; expected kernel, backpressure, scenario_path or progress", path, row, col, strings.Join(e.Key(), "."))
	}
	var decode *toml.DecodeError
	if errors.As(err, &decode) {
		row, col := decode.Position()
		return fmt.Errorf("%s:%d:%d: %s", path, row, col, strings.TrimPrefix(decode.Error(), "toml: "))
	}
	return err
}

func (c *config) check() error {
	for _, k := range []struct {
		name, value string
		legal       []string
	}{
		{"kernel", c.Kernel, []string{"auto", "host", "lab", "model"}},
		{"backpressure", c.Backpressure, []string{"auto", "native", "gate", "lossy"}},
		{"progress", c.Progress, []string{"auto", "on", "off"}},
	} {
		if !slices.Contains(k.legal, k.value) {
			return fmt.Errorf("%s = %q; expected one of %s", k.name, k.value, strings.Join(k.legal, ", "))
		}
	}
	return nil
}
