package gpu

import (
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"
)

const (
	defaultTTL = 10 * time.Minute
	maxTTL     = time.Hour // longer work needs another request, so that a forgotten request ends
)

var errDetached = errors.New("detached")

// detachment holds a request to release NVML for a while. A client of NVML would prevent GPU resets, MIG changes and
// the removal of the driver.
type detachment struct {
	mu       sync.Mutex
	until    time.Time
	changed  chan struct{} // closed and replaced when until changes
	released chan struct{} // closed while Run holds no library
}

func newDetachment() *detachment {
	d := &detachment{changed: make(chan struct{}), released: make(chan struct{})}
	close(d.released)
	return d
}

// set changes the end of the detachment. The returned channel is closed when NVML is released.
func (d *detachment) set(until time.Time) (released <-chan struct{}) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.until = until
	close(d.changed)
	d.changed = make(chan struct{})
	return d.released
}

// get returns how long NVML must stay released, and a channel that is closed when this changes.
func (d *detachment) get() (remaining time.Duration, changed <-chan struct{}) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return max(0, time.Until(d.until)), d.changed
}

// hold marks the library as held until the returned function is called.
func (d *detachment) hold() (release func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	released := make(chan struct{})
	d.released = released
	return func() { close(released) }
}

// Detach releases NVML, and returns when NVML is released. A GPU can then be reset, MIG changed or the driver unloaded.
// Until ttl has passed or Attach is called, GPU series are absent, and llm_gpu_nvml_up has the reason detached.
func (c *Collector) Detach(ttl time.Duration) error {
	if ttl <= 0 || ttl > maxTTL {
		return fmt.Errorf("detach for %s: give a time above zero and up to %s", ttl, maxTTL)
	}
	for _, h := range c.health(time.Now()) {
		if h.stuck {
			return fmt.Errorf("GPU %s (%s) is stuck in a driver call, so NVML cannot be released: stop the exporter instead", h.identity.Index,
				h.identity.PCI)
		}
	}
	patience := c.options.Deadline + 5*time.Second
	select {
	case <-c.detach.set(time.Now().Add(ttl)):
		c.options.Logger.Info("NVML is released", "ttl", ttl)
		return nil
	case <-time.After(patience):
		return fmt.Errorf("after %s a driver call that does not return still uses NVML: stop the exporter instead", patience)
	}
}

// Attach ends a detachment early. It does not wait for the GPUs to be read again.
func (c *Collector) Attach() { c.detach.set(time.Time{}) }

// DetachHandler serves POST /-/detach?ttl=10m. It answers 200 when NVML is released, 400 for an invalid ttl, and 503
// when NVML cannot be released.
func (c *Collector) DetachHandler() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPost {
			w.Header().Set("Allow", http.MethodPost)
			http.Error(w, "use POST", http.StatusMethodNotAllowed)
			return
		}
		ttl := defaultTTL
		if said := r.FormValue("ttl"); said != "" {
			var err error
			if ttl, err = time.ParseDuration(said); err != nil || ttl <= 0 || ttl > maxTTL {
				http.Error(w, fmt.Sprintf("ttl %q: want a duration such as 10m, up to %s", said, maxTTL), http.StatusBadRequest)
				return
			}
		}
		if err := c.Detach(ttl); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintf(w, "NVML is released for %s\n", ttl)
	})
}
