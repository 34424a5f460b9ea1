package babelgate

import (
	"context"
	"encoding/json"
	"net/http"
	"time"
)

// A Delivery is a received message. It is leased until LeaseExpiresAt (Unix milliseconds).
type Delivery struct {
	Queue            string            `json:"-"`
	AckToken         string            `json:"ack_token"`
	LeaseExpiresAt   int64             `json:"lease_expires_at"`
	Attempts         int64             `json:"attempts"` // earlier deliveries that ended without an ack
	Redelivered      bool              `json:"redelivered"`
	Headers          map[string]string `json:"headers"`
	BrokerProperties BrokerProperties  `json:"broker_properties"` // such as SequenceNumber; empty if the broker has none
	Envelope         Envelope          `json:"envelope"`
}

// An Envelope is the message as it lies on the queue.
type Envelope struct {
	Job     string          `json:"job"`
	TraceID string          `json:"trace_id"`
	Data    json.RawMessage `json:"data"`
	Meta    Meta            `json:"meta"`
}

// Meta are the facts of a message. CreatedAt is in Unix milliseconds. Use ID to detect duplicates.
type Meta struct {
	ID        string `json:"id"`
	Queue     string `json:"queue"`
	Lang      string `json:"lang"`
	CreatedAt int64  `json:"created_at"`
}

// Decode reads the payload into out.
func (d *Delivery) Decode(out any) error { return json.Unmarshal(d.Envelope.Data, out) }

// Traceparent is the W3C trace context that travelled with the message, or empty.
func (d *Delivery) Traceparent() string { return d.Headers["traceparent"] }

// ReceiveOptions of a receive. Zero values mean: one message, no wait, the lease of the queue.
type ReceiveOptions struct {
	MaxMessages int           // at most 100
	Wait        time.Duration // for the first message, at most 30 s
	Lease       time.Duration
}

// Receive leases messages. It returns none when there are none within Wait.
func (c *Client) Receive(ctx context.Context, queue string, options ReceiveOptions) ([]*Delivery, error) {
	request, err := receiveCall(queue, options)
	if err != nil {
		return nil, err
	}
	return c.receive(ctx, queue, request, c.retryFor)
}

func receiveCall(queue string, options ReceiveOptions) (call, error) {
	parameters := map[string]any{"max_messages": max(options.MaxMessages, 1), "wait_seconds": options.Wait.Seconds()}
	if options.Lease > 0 {
		parameters["lease_seconds"] = options.Lease.Seconds()
	}
	body, err := json.Marshal(parameters)
	return call{method: http.MethodPost, path: pathOf(queue, "messages:receive"), body: body, wait: options.Wait}, err
}

func (c *Client) receive(ctx context.Context, queue string, request call, retryFor time.Duration) ([]*Delivery, error) {
	var answer struct {
		Messages []*Delivery `json:"messages"`
	}
	if err := c.do(ctx, request, &answer, retryFor); err != nil {
		return nil, err
	}
	for _, delivery := range answer.Messages {
		delivery.Queue = queue
	}
	return answer.Messages, nil
}

// A Settlement says how many tokens of a call were settled. Results has one entry per token.
type Settlement struct {
	Settled int `json:"settled"`
	Failed  int `json:"failed"`
	Results []struct {
		Index          int    `json:"index"`
		Action         string `json:"action"`
		Status         int    `json:"status"`
		Code           string `json:"code"`
		Detail         string `json:"detail"`
		LeaseExpiresAt int64  `json:"lease_expires_at"`
	} `json:"results"`
}

// A Failure says why a message was not handled.
type Failure struct {
	Message   string `json:"message,omitempty"`
	Exception string `json:"exception,omitempty"` // the kind of the failure
}

// Ack removes messages of one queue. IsLeaseLost tells the error for a single message whose lease is over.
func (c *Client) Ack(ctx context.Context, deliveries ...*Delivery) (*Settlement, error) {
	return c.settle(ctx, "ack", deliveries, nil, c.retryFor)
}

// NackOptions of a nack. A nil Delay means the backoff of the queue.
type NackOptions struct {
	Delay *time.Duration
	Error *Failure
	// NotAttempted: give the messages back at once, without counting an attempt. Delay and Error must be nil.
	NotAttempted bool
}

// Nack delivers messages again.
func (c *Client) Nack(ctx context.Context, options NackOptions, deliveries ...*Delivery) (*Settlement, error) {
	return c.settle(ctx, "nack", deliveries, options.parameters(), c.retryFor)
}

func (o NackOptions) parameters() map[string]any {
	parameters := map[string]any{}
	if o.NotAttempted {
		parameters["failed"] = false
	}
	if o.Delay != nil {
		parameters["delay_seconds"] = o.Delay.Seconds()
	}
	if o.Error != nil {
		parameters["error"] = o.Error
	}
	return parameters
}

// Reject dead-letters messages.
func (c *Client) Reject(ctx context.Context, why Failure, deliveries ...*Delivery) (*Settlement, error) {
	return c.settle(ctx, "reject", deliveries, map[string]any{"error": why}, c.retryFor)
}

// Extend prolongs leases: they end lease from now.
func (c *Client) Extend(ctx context.Context, lease time.Duration, deliveries ...*Delivery) (*Settlement, error) {
	return c.settle(ctx, "extend", deliveries, map[string]any{"lease_seconds": lease.Seconds()}, c.retryFor)
}

func (c *Client) settle(
	ctx context.Context, action string, deliveries []*Delivery, parameters map[string]any, retryFor time.Duration,
) (*Settlement, error) {
	if len(deliveries) == 0 {
		return &Settlement{}, nil
	}
	tokens := make([]string, len(deliveries))
	for i, delivery := range deliveries {
		tokens[i] = delivery.AckToken
	}
	order := map[string]any{"ack_tokens": tokens}
	for name, value := range parameters {
		order[name] = value
	}
	body, err := json.Marshal(order)
	if err != nil {
		return nil, err
	}
	request := call{method: http.MethodPost, path: pathOf(deliveries[0].Queue, "messages:"+action), body: body}
	settlement := &Settlement{}
	if err := c.do(ctx, request, settlement, retryFor); err != nil {
		return nil, err
	}
	return settlement, nil
}
