package drill

import (
	"context"
	"math"
	"sync/atomic"
	"time"

	"github.com/llm-node-exporter/llm-node-exporter/internal/fakenvml"
)

// GPUs are simulated GPUs behind a real NVML library file: one per engine, as busy as the engine.
type GPUs struct {
	// Library is the file to load instead of the driver's.
	Library string
	state   *fakenvml.State
	running []atomic.Int64
}

// NewGPUs builds the library in dir. It needs gcc: fakenvml.ErrNoCompiler says so.
func NewGPUs(dir string, n int) (*GPUs, error) {
	library, err := fakenvml.Build(dir)
	if err != nil {
		return nil, err
	}
	state, err := fakenvml.NewState(library, n, fakenvml.H100)
	if err != nil {
		return nil, err
	}
	return &GPUs{Library: library, state: state, running: make([]atomic.Int64, n)}, nil
}

// Under couples an engine to a GPU.
func (g *GPUs) Under(o Observer, index int) Observer { return &coupled{o, &g.running[index]} }

type coupled struct {
	Observer
	running *atomic.Int64
}

// State implements Observer.
func (c *coupled) State(running, waiting int, kv float64) {
	c.running.Store(int64(running))
	c.Observer.State(running, waiting, kv)
}

// Run lets bandwidth, power and temperature follow the batches until ctx is done. Decoding is bound
// by memory bandwidth: the weights are read once per step whatever the batch, the KV cache per request.
func (g *GPUs) Run(ctx context.Context) error {
	temperature := make([]float64, len(g.running))
	for i := range temperature {
		temperature[i] = 45
	}
	for ctx.Err() == nil {
		for i := range g.running {
			batch := float64(g.running[i].Load())
			busy := 0.0
			if batch > 0 {
				busy = math.Min(95, 55+0.6*batch)
			}
			temperature[i] += 0.1 * (38 + 0.35*busy - temperature[i])
			celsius := int(math.Round(temperature[i]))
			if err := g.state.Bandwidth(i, busy); err != nil {
				return err
			}
			if err := g.state.Temperature(i, celsius, 87-celsius); err != nil {
				return err
			}
		}
		sleep(ctx, time.Second)
	}
	return nil
}
