// The protocol between the instrument and a driver: bench/README.md describes it.

package main

import (
	"encoding/json"
	"math/bits"
	"sort"
	"sync"

	"golang.org/x/sys/unix"
)

type scenario struct {
	Kind      string `json:"kind"`
	Shape     string `json:"shape"`
	Senders   int    `json:"senders"`
	Receivers int    `json:"receivers"`
	Size      int    `json:"size"`
	// Senders connect when they first ask.
	FirstContact bool `json:"first_contact"`
}

type order struct {
	Order      string          `json:"order"`
	Role       string          `json:"role"`
	Scenario   scenario        `json:"scenario"`
	System     json.RawMessage `json:"system"`
	Run        string          `json:"run"`
	Round      uint32          `json:"round"`
	Messages   uint32          `json:"messages"`
	IntervalNs int64           `json:"interval_ns"`
	Stamp      string          `json:"stamp"`
	StartNs    int64           `json:"start_ns"`
	Expected   uint64          `json:"expected"`
	QuietMs    int64           `json:"quiet_ms"`
}

func monotonicNs() int64 {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		panic(err)
	}
	return now.Nano()
}

// Each power of two is divided into so many buckets.
const perOctave = 128

type buckets struct {
	counts map[int]uint64
	total  uint64
	sum    float64
}

func newBuckets() *buckets { return &buckets{counts: map[int]uint64{}} }

func (b *buckets) record(ns int64) {
	if ns < 0 {
		ns = 0
	}
	shift := max(bits.Len64(uint64(ns))-8, 0)
	b.counts[shift*perOctave+int(ns>>shift)]++
	b.total++
	b.sum += float64(ns)
}

func (b *buckets) add(other *buckets) {
	for bucket, count := range other.counts {
		b.counts[bucket] += count
	}
	b.total += other.total
	b.sum += other.sum
}

func (b *buckets) mean() float64 {
	if b.total == 0 {
		return 0
	}
	return b.sum / float64(b.total)
}

func (b *buckets) pairs() [][2]uint64 {
	pairs := make([][2]uint64, 0, len(b.counts))
	for bucket, count := range b.counts {
		low := uint64(bucket)
		if bucket >= 2*perOctave {
			shift := bucket/perOctave - 1
			low = uint64(bucket-shift*perOctave) << shift
		}
		pairs = append(pairs, [2]uint64{low, count})
	}
	sort.Slice(pairs, func(a, b int) bool { return pairs[a][0] < pairs[b][0] })
	return pairs
}

const (
	payloadBytes = 32
	digits       = "0123456789abcdef"
)

func writeDigits(out []byte, value uint64) {
	for place := len(out) - 1; place >= 0; place-- {
		out[place] = digits[value&15]
		value >>= 4
	}
}

func readDigits(text []byte) (value uint64, ok bool) {
	for _, digit := range text {
		switch {
		case digit >= '0' && digit <= '9':
			value = value<<4 | uint64(digit-'0')
		case digit >= 'a' && digit <= 'f':
			value = value<<4 | uint64(digit-'a'+10)
		default:
			return 0, false
		}
	}
	return value, true
}

func filled(size int) []byte {
	content := make([]byte, size)
	for place := range content {
		content[place] = 'x'
	}
	return content
}

func writePayload(out []byte, round, sender, number uint32, ns int64) {
	writeDigits(out[:2], uint64(round))
	writeDigits(out[2:8], uint64(sender))
	writeDigits(out[8:16], uint64(number))
	writeDigits(out[16:32], uint64(ns))
}

// tally counts what one receiver gets.
type tally struct {
	sync.Mutex
	round, messages                               uint32
	seen                                          [][]uint64
	highest                                       []int64
	received, duplicated, disordered, late, wrong uint64
	lastNs                                        int64
	times                                         *buckets
}

func (t *tally) begin(round uint32, senders int, messages uint32) {
	t.Lock()
	defer t.Unlock()
	t.round, t.messages = round, messages
	t.seen = make([][]uint64, senders)
	t.highest = make([]int64, senders)
	for sender := range t.seen {
		t.seen[sender] = make([]uint64, messages/64+1)
		t.highest[sender] = -1
	}
	t.received, t.duplicated, t.disordered, t.late, t.wrong, t.lastNs = 0, 0, 0, 0, 0, 0
	t.times = newBuckets()
}

func (t *tally) count(content []byte, size int) {
	now := monotonicNs()
	t.Lock()
	defer t.Unlock()
	if len(content) != size || size < payloadBytes {
		t.wrong++
		return
	}
	round, ok1 := readDigits(content[:2])
	sender, ok2 := readDigits(content[2:8])
	number, ok3 := readDigits(content[8:16])
	sent, ok4 := readDigits(content[16:32])
	if !ok1 || !ok2 || !ok3 || !ok4 {
		t.wrong++
		return
	}
	if uint32(round) != t.round {
		t.late++
		return
	}
	if sender >= uint64(len(t.seen)) || number >= uint64(t.messages) {
		t.wrong++
		return
	}
	if t.seen[sender][number/64]>>(number%64)&1 == 1 {
		t.duplicated++
		return
	}
	t.seen[sender][number/64] |= 1 << (number % 64)
	if int64(number) < t.highest[sender] {
		t.disordered++
	} else {
		t.highest[sender] = int64(number)
	}
	t.received++
	t.lastNs = now
	t.times.record(now - int64(sent))
}
