// Drivers of the papers' benchmark for systems whose own client in Go is the one their makers measure with: NATS and RabbitMQ.
//
//	go-driver nats|rabbitmq
package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

// sender is an agent that sends.
type sender interface {
	send(content []byte) error
	// flush sends the waiting messages.
	flush() error
	// ask sends and waits for the answer.
	ask(content []byte) ([]byte, error)
}

// system is a measured system.
type system interface {
	client() string
	// connect makes the agents of one side. Receivers call got, or answer when the scenario asks for it.
	connect(o order, got func(receiver int, content []byte), answered func()) ([]sender, error)
	leave()
}

type stage struct {
	system   system
	scenario scenario
	senders  []sender
	tallies  []*tally
	answered atomic.Uint64
}

func main() {
	var s system
	switch {
	case len(os.Args) == 2 && os.Args[1] == "nats":
		s = &natsSystem{}
	case len(os.Args) == 2 && os.Args[1] == "rabbitmq":
		s = &rabbitSystem{}
	default:
		fmt.Fprintln(os.Stderr, "usage: go-driver nats|rabbitmq")
		os.Exit(2)
	}
	if err := serve(&stage{system: s}); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func serve(st *stage) error {
	input := bufio.NewReaderSize(os.Stdin, 1<<20)
	out := json.NewEncoder(os.Stdout)
	for {
		line, err := input.ReadBytes('\n')
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		var o order
		if err := json.Unmarshal(line, &o); err != nil {
			return fmt.Errorf("not an order: %w", err)
		}
		if o.Order == "stop" {
			st.system.leave()
			return nil
		}
		answer, err := st.follow(o)
		if err != nil {
			answer = map[string]any{"answer": "error", "text": err.Error()}
		}
		if err := out.Encode(answer); err != nil {
			return err
		}
	}
}

func (st *stage) follow(o order) (map[string]any, error) {
	switch o.Order {
	case "prepare":
		return st.prepare(o)
	case "expect":
		st.answered.Store(0)
		for _, t := range st.tallies {
			t.begin(o.Round, st.scenario.Senders, o.Messages)
		}
	case "run":
		return st.run(o)
	case "report":
		return st.report(o), nil
	case "meet":
	default:
		return nil, fmt.Errorf("an unknown order: %s", o.Order)
	}
	return map[string]any{"answer": "ready"}, nil
}

func (st *stage) prepare(o order) (map[string]any, error) {
	st.scenario = o.Scenario
	for range o.Scenario.Receivers {
		t := &tally{}
		t.begin(0, o.Scenario.Senders, 0)
		st.tallies = append(st.tallies, t)
	}
	got := func(receiver int, content []byte) { st.tallies[receiver].count(content, st.scenario.Size) }
	senders, err := st.system.connect(o, got, func() { st.answered.Add(1) })
	if err != nil {
		return nil, err
	}
	st.senders = senders
	return map[string]any{"answer": "prepared", "here": nil, "client": st.system.client()}, nil
}

type played struct {
	sent, answered  uint64
	firstNs, lastNs int64
	times           *buckets
	err             error
}

func sleepUntil(ns int64) {
	if left := ns - monotonicNs(); left > 0 {
		time.Sleep(time.Duration(left))
	}
}

func (st *stage) run(o order) (map[string]any, error) {
	results := make([]played, len(st.senders))
	var all sync.WaitGroup
	for number, s := range st.senders {
		all.Add(1)
		go func() {
			defer all.Done()
			if st.scenario.Kind == "stream" {
				results[number] = stream(s, number, len(st.senders), st.scenario.Size, o)
			} else {
				results[number] = roundTrips(s, number, st.scenario.Size, o)
			}
		}()
	}
	all.Wait()
	sum := played{times: newBuckets()}
	for _, r := range results {
		if r.err != nil {
			return nil, r.err
		}
		if sum.firstNs == 0 || r.firstNs < sum.firstNs {
			sum.firstNs = r.firstNs
		}
		sum.lastNs = max(sum.lastNs, r.lastNs)
		sum.sent += r.sent
		sum.answered += r.answered
		sum.times.add(r.times)
	}
	return map[string]any{
		"answer": "done", "sent": sum.sent, "first_ns": sum.firstNs, "last_ns": sum.lastNs,
		"answered": sum.answered, "times": sum.times.pairs(), "mean_ns": sum.times.mean(),
	}, nil
}

func stream(s sender, number, senders, size int, o order) played {
	first := o.StartNs + o.IntervalNs*int64(number)/int64(senders)
	sleepUntil(first)
	content := filled(size)
	result := played{firstNs: monotonicNs(), times: newBuckets()}
	for message := range o.Messages {
		due := first + o.IntervalNs*int64(message)
		if o.IntervalNs > 0 && monotonicNs() < due {
			if result.err = s.flush(); result.err != nil {
				return result
			}
			sleepUntil(due)
		}
		stamp := due
		if o.Stamp != "due" {
			stamp = monotonicNs()
		}
		writePayload(content, o.Round, uint32(number), message, stamp)
		if result.err = s.send(content); result.err != nil {
			return result
		}
		result.sent++
	}
	result.err = s.flush()
	result.lastNs = monotonicNs()
	return result
}

func roundTrips(s sender, number, size int, o order) played {
	sleepUntil(o.StartNs)
	content := filled(size)
	result := played{firstNs: monotonicNs(), times: newBuckets()}
	for message := range o.Messages {
		copy(content, fmt.Sprintf("%06x%06x%02x", message, number, o.Round))
		began := monotonicNs()
		result.sent++
		answer, err := s.ask(content)
		if err != nil {
			result.err = err
			return result
		}
		if bytes.Equal(answer, content) {
			result.answered++
			result.times.record(monotonicNs() - began)
		}
	}
	result.lastNs = monotonicNs()
	return result
}

func (st *stage) soFar() uint64 {
	if st.scenario.Kind != "stream" {
		return st.answered.Load()
	}
	var sum uint64
	for _, t := range st.tallies {
		t.Lock()
		sum += t.received
		t.Unlock()
	}
	return sum
}

func (st *stage) report(o order) map[string]any {
	seen, since := st.soFar(), time.Now()
	for seen < o.Expected && time.Since(since) < time.Duration(o.QuietMs)*time.Millisecond {
		time.Sleep(2 * time.Millisecond)
		if now := st.soFar(); now != seen {
			seen, since = now, time.Now()
		}
	}
	times := newBuckets()
	var duplicated, disordered, late, wrong uint64
	var lastNs int64
	for _, t := range st.tallies {
		t.Lock()
		times.add(t.times)
		duplicated += t.duplicated
		disordered += t.disordered
		late += t.late
		wrong += t.wrong
		lastNs = max(lastNs, t.lastNs)
		t.Unlock()
	}
	return map[string]any{
		"answer": "report", "received": st.soFar(), "duplicated": duplicated, "disordered": disordered,
		"late": late, "corrupt": wrong, "last_ns": lastNs, "times": times.pairs(), "mean_ns": times.mean(),
	}
}
