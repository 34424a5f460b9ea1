package babelgate

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"
)

const (
	mostPerReceive = 100
	// One request prolongs all leases, and takes so many ack tokens.
	mostConcurrency = 1_000
	// How long a stop waits for an answer that is on its way: else its messages stay leased for nobody.
	arriveWithin       = 250 * time.Millisecond
	mostErrorBytes     = 10_000
	returnWithin       = 5 * time.Second
	leaseChecksPerTime = 12
)

// A Handler handles one message. Returning nil acks it. An error nacks it with its text and type; Reject and RetryIn do
// what they say. ctx is cancelled when the lease is lost, or when a stop has waited long enough.
type Handler func(ctx context.Context, delivery *Delivery) error

// ConsumerOptions of a Consumer. Zero values mean the defaults.
type ConsumerOptions struct {
	Concurrency int           // most messages at a time; no more are leased; default 10
	Lease       time.Duration // it is prolonged while the handler runs; default 60 s
	Wait        time.Duration // of the long poll, at most 30 s; default 20 s
	Grace       time.Duration // how long a stop waits for running handlers; default 30 s
	Logger      *slog.Logger  // default: slog.Default()
	// Stream: read a stream instead of long polls, if the gateway offers streams. It delivers the next message as soon as
	// one is settled. When its connection ends, all its leases do, and no attempt is counted.
	Stream bool
}

// A Consumer runs a handler for the messages of a queue, several at a time.
type Consumer struct {
	client  *Client
	queue   string
	handler Handler
	options ConsumerOptions
	lock    sync.Mutex
	held    map[string]*heldLease // by ack token
}

type heldLease struct {
	delivery *Delivery
	deadline time.Time
	// suspected is when its stream ended, until the gateway has prolonged the lease after that; else zero.
	suspected time.Time
	cancel    context.CancelCauseFunc
	lost      bool
	settled   bool
}

var (
	errLeaseLost = errors.New("babelgate: the lease is over")
	errGraceOver = errors.New("babelgate: the consumer stops")
)

// Consumer makes a consumer of queue.
func (c *Client) Consumer(queue string, handler Handler, options ConsumerOptions) *Consumer {
	if options.Concurrency == 0 {
		options.Concurrency = 10
	}
	if options.Lease == 0 {
		options.Lease = time.Minute
	}
	if options.Wait == 0 {
		options.Wait = 20 * time.Second
	}
	if options.Grace == 0 {
		options.Grace = 30 * time.Second
	}
	if options.Logger == nil {
		options.Logger = slog.Default()
	}
	return &Consumer{client: c, queue: queue, handler: handler, options: options, held: map[string]*heldLease{}}
}

// Run consumes until ctx is done, and then returns nil: it receives no more, waits Grace for running handlers, and gives
// back the rest, uncounted. A gateway that is away or overloaded is waited for. Run returns a ProblemError, after the
// same end, when the gateway refuses to receive, such as for an unknown queue or a missing right.
func (c *Consumer) Run(ctx context.Context) error {
	if c.options.Concurrency < 1 || c.options.Concurrency > mostConcurrency {
		return fmt.Errorf("babelgate: Concurrency must be from 1 to %d", mostConcurrency)
	}
	handlers, end := context.WithCancelCause(context.WithoutCancel(ctx))
	defer end(nil)
	keeping, stopKeeping := context.WithCancel(handlers)
	defer stopKeeping()
	go c.keepLeases(keeping)
	var source *stream
	if c.options.Stream {
		reading, end := context.WithCancel(context.WithoutCancel(ctx))
		defer end()
		source = c.openStream(ctx, reading)
	}
	var running sync.WaitGroup
	err := c.receive(ctx, handlers, source, &running)
	ended := make(chan struct{})
	go func() { running.Wait(); close(ended) }()
	select {
	case <-ended:
	case <-time.After(c.options.Grace):
		end(errGraceOver)
		c.giveBack(ended)
	}
	return err
}

// receive starts a handler for each message, until ctx is done. source: nil for long polls.
func (c *Consumer) receive(ctx, handlers context.Context, source *stream, running *sync.WaitGroup) error {
	polling, hangUp := context.WithCancel(context.WithoutCancel(ctx))
	defer hangUp()
	defer context.AfterFunc(ctx, func() { time.AfterFunc(arriveWithin, hangUp) })()
	slots := make(chan struct{}, c.options.Concurrency)
	start := func(delivery *Delivery, deadline time.Time) {
		held, handling := c.hold(handlers, delivery, deadline)
		running.Add(1)
		go func() {
			defer running.Done()
			defer func() { <-slots }()
			c.handle(handling, handlers, held)
		}()
	}
	pauses := &attempts{pause: firstPause}
	for ctx.Err() == nil {
		// The first free slot is waited for; each other one asks for one more message.
		select {
		case slots <- struct{}{}:
		case <-ctx.Done():
			return nil
		}
		if source != nil {
			delivery, err := source.next(ctx)
			if delivery != nil {
				start(delivery, time.Now().Add(c.options.Lease))
				continue
			}
			<-slots
			if !errors.Is(err, errNoStreams) {
				return err
			}
			c.options.Logger.Warn("The gateway offers no streams: the consumer goes on with long polls.", "queue", c.queue)
			source = nil
			continue
		}
		free := 1
		for ; free < mostPerReceive; free++ {
			select {
			case slots <- struct{}{}:
				continue
			default:
			}
			break
		}
		asked := time.Now()
		request, err := receiveCall(c.queue, ReceiveOptions{free, c.options.Wait, c.options.Lease})
		if err != nil {
			return err
		}
		deliveries, err := c.client.receive(polling, c.queue, request, 0)
		for range free - len(deliveries) {
			<-slots
		}
		if ctx.Err() != nil && len(deliveries) == 0 {
			return nil
		}
		if err != nil {
			pause, again := pauses.pauseAfter(err)
			if !again {
				return err
			}
			c.options.Logger.Warn("receive failed", "queue", c.queue, "next_in", pause, "error", err)
			if sleep(ctx, pause) != nil {
				return nil
			}
			continue
		}
		pauses = &attempts{pause: firstPause}
		for _, delivery := range deliveries {
			start(delivery, asked.Add(c.options.Lease))
		}
	}
	return nil
}

func (c *Consumer) hold(ctx context.Context, delivery *Delivery, deadline time.Time) (*heldLease, context.Context) {
	handling, cancel := context.WithCancelCause(ctx)
	held := &heldLease{delivery: delivery, deadline: deadline, cancel: cancel}
	c.lock.Lock()
	defer c.lock.Unlock()
	c.held[delivery.AckToken] = held
	return held, handling
}

func (c *Consumer) handle(handling, handlers context.Context, held *heldLease) {
	err := c.call(handling, held.delivery)
	defer held.cancel(nil)
	if handlers.Err() != nil {
		return // the grace is over: giveBack returns what is held
	}
	defer func() {
		c.lock.Lock()
		defer c.lock.Unlock()
		delete(c.held, held.delivery.AckToken)
	}()
	c.lock.Lock()
	lost, left := held.lost, time.Until(held.deadline)
	c.lock.Unlock()
	if lost {
		return
	}
	action, parameters := settlementFor(err)
	if err != nil {
		c.options.Logger.Warn("handler failed", "queue", c.queue, "id", held.delivery.Envelope.Meta.ID, "error", err)
	}
	// While the lease lives, and it is prolonged until this ends, the message is delivered to nobody else.
	_, err = c.client.settle(handlers, action, []*Delivery{held.delivery}, parameters, max(left, c.client.timeout))
	if err != nil && handlers.Err() == nil {
		c.options.Logger.Warn("not settled", "queue", c.queue, "id", held.delivery.Envelope.Meta.ID, "error", err)
	}
	if err == nil {
		c.lock.Lock()
		defer c.lock.Unlock()
		held.settled = true
	}
}

// call runs the handler; a panic is an error, so that one message does not end the program.
func (c *Consumer) call(ctx context.Context, delivery *Delivery) (err error) {
	defer func() {
		if recovered := recover(); recovered != nil {
			err = fmt.Errorf("panic: %v", recovered)
		}
	}()
	return c.handler(ctx, delivery)
}

func settlementFor(err error) (action string, parameters map[string]any) {
	if err == nil {
		return "ack", nil
	}
	text := err.Error()
	if len(text) > mostErrorBytes {
		text = strings.ToValidUTF8(text[:mostErrorBytes], "")
	}
	var again retry
	if errors.As(err, &again) {
		failure := &Failure{text, fmt.Sprintf("%T", again.error)}
		return "nack", NackOptions{Delay: &again.delay, Error: failure}.parameters()
	}
	var rejected rejection
	if errors.As(err, &rejected) {
		return "reject", map[string]any{"error": Failure{text, fmt.Sprintf("%T", rejected.error)}}
	}
	return "nack", NackOptions{Error: &Failure{text, fmt.Sprintf("%T", err)}}.parameters()
}

// suspectLeases has all leases asked for soon. Those of a stream that ended are lost, unless its gateway was killed.
func (c *Consumer) suspectLeases() {
	c.lock.Lock()
	defer c.lock.Unlock()
	for _, each := range c.held {
		each.suspected = time.Now()
	}
}

// keepLeases prolongs each lease when a third of it is over, or when it is suspected to be lost.
func (c *Consumer) keepLeases(ctx context.Context) {
	for sleep(ctx, c.options.Lease/leaseChecksPerTime) == nil {
		due := time.Now().Add(c.options.Lease * 2 / 3)
		var held []*heldLease
		var deliveries []*Delivery
		c.lock.Lock()
		for _, each := range c.held {
			if (each.deadline.Before(due) || !each.suspected.IsZero()) && !each.lost && !each.settled {
				held, deliveries = append(held, each), append(deliveries, each.delivery)
			}
		}
		c.lock.Unlock()
		if len(held) == 0 {
			continue
		}
		asked := time.Now()
		// An answer that comes too late must not hinder the next attempt.
		soon, cancel := context.WithTimeout(ctx, max(c.options.Lease/3, time.Second))
		parameters := map[string]any{"lease_seconds": c.options.Lease.Seconds()}
		settlement, err := c.client.settle(soon, "extend", deliveries, parameters, 0)
		cancel()
		if err != nil && !IsLeaseLost(err) {
			c.options.Logger.Warn("leases not prolonged", "queue", c.queue, "count", len(held), "error", err)
			continue
		}
		codes := map[int]string{0: "lease_lost"}
		if err == nil {
			clear(codes)
			for _, result := range settlement.Results {
				codes[result.Index] = result.Code
			}
		}
		c.lock.Lock()
		for i, each := range held {
			switch codes[i] {
			case "":
				each.deadline = asked.Add(c.options.Lease)
				// What was asked before the end of the stream says nothing of the time after it.
				if asked.After(each.suspected) {
					each.suspected = time.Time{}
				}
			case "lease_lost":
				each.lost = !each.settled
				each.cancel(errLeaseLost)
			}
		}
		c.lock.Unlock()
	}
}

// giveBack returns what the handlers did not finish in time, when they have ended or a second has passed.
func (c *Consumer) giveBack(ended <-chan struct{}) {
	select {
	case <-ended:
	case <-time.After(time.Second):
	}
	var left []*Delivery
	c.lock.Lock()
	for _, each := range c.held {
		if !each.settled && !each.lost {
			left = append(left, each.delivery)
		}
	}
	c.lock.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), returnWithin)
	defer cancel()
	parameters := NackOptions{NotAttempted: true}.parameters()
	if _, err := c.client.settle(ctx, "nack", left, parameters, returnWithin); err != nil {
		c.options.Logger.Warn("not given back", "queue", c.queue, "count", len(left), "error", err)
	}
}
