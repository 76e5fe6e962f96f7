//go:build race

package itest

func init() { raceDetector = true }
