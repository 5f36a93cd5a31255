package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Load describes the requests of clients.
type Load struct {
	Rate     float64       // requests per second; arrivals are a Poisson process, regardless of earlier requests
	Shared   int           // tokens at the start of a prompt that all prompts of a group have in common
	Own      int           // tokens after the common tokens, which no other prompt has
	Nonce    bool          // a unique token before all other tokens, so that no prefix cache has the prompt
	Output   int           // mean number of requested tokens; a request has half to one and a half times as many
	Patience time.Duration // time after which a client gives up; default: a minute
	Cancels  float64       // share of the clients that leave after Early
	Early    time.Duration
	Invalid  float64 // share of the requests that no engine can serve, because they have more tokens than the model's length
	Stop     string  // text that ends an answer
	Samples  int     // number of answers per request; default 1
	Long     float64 // share of the prompts that have longOwn unique tokens
	More     string  // further fields of a request, as JSON
	Salted   bool    // each request has its own cache
	Retries  int     // how many times a client that gave up sends its request again, at once
	Adapters int     // number of adapters that requests use in turn; 0 means the model itself
}

// A Record is what a client saw of one request. Times are in seconds since the play began.
type Record struct {
	Sent      float64  `json:"sent"`
	First     float64  `json:"first,omitempty"` // when the first token came; 0 means never
	End       float64  `json:"end"`
	Status    int      `json:"status"` // status of the HTTP answer; 0 means no answer
	Tokens    int      `json:"tokens"`
	Prompt    int      `json:"prompt"` // number of tokens that the server reports
	Reason    string   `json:"reason,omitempty"`
	Error     string   `json:"error,omitempty"` // error of the connection, or error event of a stream
	Cancelled bool     `json:"cancelled,omitempty"`
	Invalid   bool     `json:"invalid,omitempty"`
	Late      [][2]int `json:"late,omitempty"` // gaps of more than 50 ms between tokens: time and length, in ms
	gaps      []gap
}

// gap is the time between two tokens.
type gap struct{ at, length float64 }

// Client sends requests to a server, and keeps a record of each.
type Client struct {
	url     atomic.Pointer[string]
	key     string
	begin   time.Time
	load    atomic.Pointer[Load]
	http    *http.Client
	random  *rand.Rand
	mu      sync.Mutex
	records []*Record
	pending map[*Record]bool
	turn    int // turn of the adapters
	running sync.WaitGroup
	asks    context.Context // context of the requests
	Leave   context.CancelFunc
}

// NewClient returns a client that has not sent a request yet.
func NewClient(url, key string, seed uint64) *Client {
	transport := &http.Transport{MaxIdleConnsPerHost: 1000, IdleConnTimeout: time.Minute}
	asks, leave := context.WithCancel(context.Background())
	c := &Client{
		asks: asks, Leave: leave, key: key, begin: time.Now(), http: &http.Client{Transport: transport},
		random: rand.New(rand.NewPCG(seed, 0)), pending: map[*Record]bool{},
	}
	c.Move(url)
	return c
}

// Move makes the client send later requests to another URL.
func (c *Client) Move(url string) { c.url.Store(&url) }

// Set changes the load from now on.
func (c *Client) Set(l Load) { c.load.Store(&l) }

// Now is the time since the play began, in seconds.
func (c *Client) Now() float64 { return time.Since(c.begin).Seconds() }

// Run sends requests until the context ends. Then it waits for the requests that are still running. Leave ends these.
func (c *Client) Run(ctx context.Context) {
	next := time.Now()
	for ctx.Err() == nil {
		l := c.load.Load()
		if l == nil || l.Rate == 0 {
			next = time.Now()
			_ = sleep(ctx, 50*time.Millisecond)
			continue
		}
		next = next.Add(time.Duration(c.random.ExpFloat64() / l.Rate * float64(time.Second)))
		if sleep(ctx, time.Until(next)) != nil {
			break
		}
		if c.load.Load() != l { // the load has changed
			next = time.Now()
			continue
		}
		body, record := c.request(*l, c.random.IntN(groups))
		early := time.Duration(0)
		if c.random.Float64() < l.Cancels {
			early = l.Early
		}
		c.running.Go(func() {
			c.send(body, record, early, l.Patience)
			for again := 0; again < l.Retries && record.Cancelled && ctx.Err() == nil; again++ {
				record = &Record{Invalid: record.Invalid}
				c.send(body, record, early, l.Patience)
			}
		})
	}
	c.running.Wait()
}

// longOwn is the number of tokens at the end of a long prompt that no other prompt has.
const longOwn = 3000

// groups is the number of groups of prompts. All prompts of a group begin with the same tokens.
const groups = 8

// request draws a request. Its prompt begins with the common tokens of a group.
func (c *Client) request(l Load, group int) ([]byte, *Record) {
	r := &Record{}
	word := func() int { return c.random.IntN(1000) }
	var prompt []string
	if l.Nonce {
		prompt = append(prompt, fmt.Sprintf("w%d w%d", word(), word()))
	}
	shared := rand.New(rand.NewPCG(uint64(group), 1))
	for range l.Shared {
		prompt = append(prompt, fmt.Sprintf("w%d", shared.IntN(1000)))
	}
	own := l.Own
	if c.random.Float64() < l.Invalid {
		r.Invalid, own = true, own+6000
	} else if l.Long > 0 && c.random.Float64() < l.Long {
		own = longOwn
	}
	for range own {
		prompt = append(prompt, fmt.Sprintf("w%d", word()))
	}
	asks := map[string]any{
		"model": model, "prompt": strings.Join(prompt, " "), "max_tokens": max(1, l.Output/2+c.random.IntN(l.Output+1)),
		"stream": true, "stream_options": map[string]any{"include_usage": true},
	}
	if l.Samples > 0 {
		asks["n"] = l.Samples
	}
	if l.Stop != "" {
		asks["stop"] = l.Stop
	}
	if l.More != "" {
		_ = json.Unmarshal([]byte(l.More), &asks)
	}
	if l.Salted {
		asks["cache_salt"] = fmt.Sprint(c.random.Uint64())
	}
	if l.Adapters > 0 {
		asks["model"] = adapter(c.turn % l.Adapters)
		c.turn++
	}
	body, _ := json.Marshal(asks)
	return body, r
}

// send sends a request and records the answer.
func (c *Client) send(body []byte, r *Record, early, patience time.Duration) {
	if patience == 0 {
		patience = time.Minute
	}
	if early > 0 {
		patience = early
	}
	ctx, cancel := context.WithTimeout(c.asks, patience)
	defer cancel()
	r.Sent = c.Now()
	c.mu.Lock()
	c.pending[r] = true
	c.mu.Unlock()
	err := c.stream(ctx, body, r)
	c.mu.Lock()
	defer c.mu.Unlock()
	r.End = c.Now()
	if ctx.Err() != nil {
		r.Cancelled = true
	} else if err != nil {
		r.Error = err.Error()
	}
	delete(c.pending, r)
	c.records = append(c.records, r)
}

// stream sends a request, and reads its answer.
func (c *Client) stream(ctx context.Context, body []byte, r *Record) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, *c.url.Load()+"/v1/completions", bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Authorization", "Bearer "+c.key)
	resp, err := c.http.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	c.mu.Lock()
	r.Status = resp.StatusCode
	c.mu.Unlock()
	if resp.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(resp.Body, 300))
		return errors.New(string(text))
	}
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(nil, 1<<20)
	done, last := false, 0.0
	for lines.Scan() {
		data, found := bytes.CutPrefix(lines.Bytes(), []byte("data: "))
		if !found {
			continue
		}
		if done = string(data) == "[DONE]"; done {
			break
		}
		var chunk struct {
			Choices []struct {
				Text   string
				Reason string `json:"finish_reason"`
			}
			Usage *struct {
				Prompt     int `json:"prompt_tokens"`
				Completion int `json:"completion_tokens"`
			}
			Error any
		}
		if err := json.Unmarshal(data, &chunk); err != nil {
			return err
		}
		if chunk.Error != nil {
			return fmt.Errorf("error event: %.300s", data)
		}
		c.mu.Lock()
		if chunk.Usage != nil {
			r.Prompt, r.Tokens = chunk.Usage.Prompt, chunk.Usage.Completion
		}
		if len(chunk.Choices) > 0 {
			r.Reason = chunk.Choices[0].Reason
			if chunk.Choices[0].Text != "" {
				last = r.token(c.Now(), last)
			}
		}
		c.mu.Unlock()
	}
	if err := lines.Err(); err != nil {
		return err
	}
	if !done {
		return errors.New("the stream was cut")
	}
	return nil
}

// token records that a part of the answer arrived at the time now. It returns now, as last for the next call.
func (r *Record) token(now, last float64) float64 {
	if r.First == 0 {
		r.First = now
		return now
	}
	r.gaps = append(r.gaps, gap{now, now - last})
	if now-last > 0.05 {
		r.Late = append(r.Late, [2]int{int(now * 1000), int((now - last) * 1000)})
	}
	return now
}

// Records returns copies of the records of all requests, ended or running.
func (c *Client) Records() []Record {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := make([]Record, 0, len(c.records)+len(c.pending))
	for _, r := range c.records {
		all = append(all, *r)
	}
	for r := range c.pending {
		all = append(all, *r)
	}
	return all
}

// sleep waits. If the context ends, it returns the reason.
func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}
