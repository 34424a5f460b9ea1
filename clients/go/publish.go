package babelgate

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"time"
)

const (
	entriesPerRequest = 1_000
	bytesPerRequest   = 4_194_304
	needsNoKey        = "idempotency_unsupported"
	lang              = "go" // what an envelope calls the language of this client
)

var printable = regexp.MustCompile(`^[ -~]{1,255}\z`)

// A Message to publish. Only Job and Data are required.
type Message struct {
	Job              string            // its kind, by convention a URN
	Data             any               // its payload, which must be a JSON object
	TraceID          string            // by convention a UUID; the gateway makes one
	Delay            time.Duration     // deliver it no sooner
	DeliverAt        time.Time         // deliver it at this time and not before, instead of Delay
	TTL              time.Duration     // dead-letter it if it is not delivered in this time
	Priority         *int              // 0 to 9, where the broker has priorities; higher is sooner
	OrderingKey      string            // where the broker supports it
	Headers          map[string]string // native headers, where the broker supports them
	BrokerProperties BrokerProperties  // where the broker supports them
	IdempotencyKey   string            // 1 to 255 printable ASCII characters; the client makes one
	Traceparent      string            // the W3C trace context of this request; of a batch, the first message's counts
	Lang             string            // the language of the producer, one of those of the envelope; default "go"
	Ext              map[string]any    // extensions by vendor, which become meta.ext of the envelope
}

// BrokerProperties by their names in the API, such as TimeToLive. A number that is received is a json.Number, which keeps
// all digits.
type BrokerProperties map[string]any

// UnmarshalJSON reads an object.
func (p *BrokerProperties) UnmarshalJSON(text []byte) error {
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	return decoder.Decode((*map[string]any)(p))
}

type draft struct {
	Job              string            `json:"job"`
	Data             any               `json:"data"`
	TraceID          string            `json:"trace_id,omitempty"`
	Meta             draftMeta         `json:"meta"`
	DelaySeconds     float64           `json:"delay_seconds,omitempty"`
	DeliverAt        *int64            `json:"deliver_at,omitempty"`
	TTLSeconds       float64           `json:"ttl_seconds,omitempty"`
	Priority         *int              `json:"priority,omitempty"`
	OrderingKey      string            `json:"ordering_key,omitempty"`
	Headers          map[string]string `json:"headers,omitempty"`
	BrokerProperties BrokerProperties  `json:"broker_properties,omitempty"`
	IdempotencyKey   string            `json:"idempotency_key,omitempty"`
}

type draftMeta struct {
	Lang string         `json:"lang"`
	Ext  map[string]any `json:"ext,omitempty"`
}

func (m Message) draft(key string) ([]byte, error) {
	meta := draftMeta{first(m.Lang, lang), m.Ext}
	var deliverAt *int64
	if !m.DeliverAt.IsZero() {
		milliseconds := m.DeliverAt.UnixMilli()
		deliverAt = &milliseconds
	}
	return json.Marshal(draft{
		m.Job, m.Data, m.TraceID, meta, m.Delay.Seconds(), deliverAt, m.TTL.Seconds(), m.Priority, m.OrderingKey, m.Headers,
		m.BrokerProperties, key,
	})
}

func (m Message) header() (http.Header, error) {
	header := http.Header{}
	if m.Traceparent != "" {
		if !visible.MatchString(m.Traceparent) {
			return nil, errors.New("babelgate: a traceparent is visible ASCII, without spaces and line ends")
		}
		header.Set("Traceparent", m.Traceparent)
	}
	return header, nil
}

// A Receipt says that the broker has stored a message. CreatedAt is in Unix milliseconds.
type Receipt struct {
	ID        string `json:"id"`
	TraceID   string `json:"trace_id"`
	Queue     string `json:"queue"`
	Broker    string `json:"broker"`
	Attempts  int64  `json:"attempts"`
	CreatedAt int64  `json:"created_at"`
}

// Publish publishes one message, and returns when the broker has stored it. A failed call is repeated with the same
// idempotency key, so the message is written once. On a queue that keeps no keys, it is repeated only if nothing was
// written; otherwise Publish returns an UnreachableError with OutcomeUnknown, or the problem outcome_unknown.
func (c *Client) Publish(ctx context.Context, queue string, message Message) (*Receipt, error) {
	body, err := message.draft("")
	if err != nil {
		return nil, err
	}
	header, err := message.header()
	if err != nil {
		return nil, err
	}
	key := message.IdempotencyKey
	if _, none := c.noKeys.Load(queue); key == "" && !none {
		key = newKey()
	}
	for {
		request := call{method: http.MethodPost, path: pathOf(queue, "messages"), body: body, header: header}
		if key == "" {
			request.repeat = unlessWritten
			header.Del("Idempotency-Key")
		} else if !printable.MatchString(key) {
			return nil, errors.New("babelgate: an idempotency key has 1 to 255 printable ASCII characters")
		} else {
			header.Set("Idempotency-Key", quoted(key))
		}
		receipt := &Receipt{}
		err := c.do(ctx, request, receipt, c.retryFor)
		var problem *ProblemError
		if errors.As(err, &problem) && problem.Code == needsNoKey && key != "" && message.IdempotencyKey == "" {
			c.noKeys.Store(queue, true)
			key = ""
			continue
		}
		if err != nil {
			return nil, err
		}
		return receipt, nil
	}
}

// A Result is that of one message of a batch: ID and TraceID when Status is 201, or else its error.
type Result struct {
	Index     int      `json:"index"`
	Status    int      `json:"status"`
	ID        string   `json:"id"`
	TraceID   string   `json:"trace_id"`
	Code      string   `json:"code"`
	Detail    string   `json:"detail"`
	Retryable bool     `json:"retryable"`
	Errors    []Defect `json:"errors"`
	Replayed  bool     `json:"replayed"`
}

// Err is the error of a message that was not accepted, or nil.
func (r Result) Err() error {
	if r.Status < 300 {
		return nil
	}
	return &ProblemError{Status: r.Status, Code: r.Code, Detail: r.Detail, Retryable: r.Retryable, Errors: r.Errors}
}

type entry struct {
	message Message
	key     string
	draft   []byte
	result  Result
}

func (e *entry) encode() (err error) {
	e.draft, err = e.message.draft(e.key)
	return err
}

// PublishBatch publishes messages in order, and returns one result per message. Only entries that failed are sent again.
// An error means that a request failed as a whole; messages of earlier requests may have been published.
func (c *Client) PublishBatch(ctx context.Context, queue string, messages []Message) ([]Result, error) {
	_, none := c.noKeys.Load(queue)
	entries := make([]entry, len(messages))
	pending := make([]int, len(messages))
	for i, message := range messages {
		key := message.IdempotencyKey
		if key == "" && !none {
			key = newKey()
		}
		entries[i], pending[i] = entry{message: message, key: key}, i
		if err := entries[i].encode(); err != nil {
			return nil, fmt.Errorf("babelgate: message %d: %w", i, err)
		}
	}
	attempts := newAttempts(always, c.retryFor)
	for len(pending) > 0 {
		for len(pending) > 0 {
			part := take(entries, pending)
			if err := c.publishPart(ctx, queue, entries, part); err != nil {
				return nil, err
			}
			pending = pending[len(part):]
		}
		failed, err := c.left(queue, entries)
		if err != nil {
			return nil, err
		}
		if failed == nil {
			break
		}
		pause, again := attempts.pauseAfter(&ProblemError{Status: 503, Retryable: true})
		if !again || sleep(ctx, pause) != nil {
			break
		}
		pending = failed
	}
	results := make([]Result, len(entries))
	for i, each := range entries {
		results[i] = each.result
		results[i].Index = i
	}
	return results, nil
}

// take returns as many of pending as one request carries.
func take(entries []entry, pending []int) []int {
	size := 0
	for i, index := range pending {
		size += len(entries[index].draft) + 1
		if i > 0 && (i == entriesPerRequest || size > bytesPerRequest) {
			return pending[:i]
		}
	}
	return pending
}

func (c *Client) publishPart(ctx context.Context, queue string, entries []entry, part []int) error {
	drafts := make([][]byte, len(part))
	request := call{method: http.MethodPost, path: pathOf(queue, "messages:batch")}
	for i, index := range part {
		drafts[i] = entries[index].draft
		if entries[index].key == "" {
			request.repeat = unlessWritten
		}
	}
	header, err := entries[part[0]].message.header()
	if err != nil {
		return err
	}
	request.header = header
	request.body = append(append([]byte{'['}, bytes.Join(drafts, []byte{','})...), ']')
	var answer struct {
		Results []Result `json:"results"`
	}
	if err := c.do(ctx, request, &answer, c.retryFor); err != nil {
		return err
	}
	for _, result := range answer.Results {
		entries[part[result.Index]].result = result
	}
	return nil
}

// left returns the entries to send again, without the key that the queue does not keep.
func (c *Client) left(queue string, entries []entry) (failed []int, err error) {
	for i := range entries {
		each := &entries[i]
		if each.result.Status < 300 {
			continue
		}
		how := always
		if each.key == "" {
			how = unlessWritten
		}
		if each.result.Code == needsNoKey && each.key != "" && each.message.IdempotencyKey == "" {
			c.noKeys.Store(queue, true)
			each.key = ""
			if err := each.encode(); err != nil {
				return nil, err
			}
		} else if !repeats(each.result.Err(), how) {
			continue
		}
		failed = append(failed, i)
	}
	return failed, nil
}

func newKey() string {
	random := make([]byte, 16)
	_, _ = rand.Read(random) // it never fails
	return fmt.Sprintf("%x-%x-%x-%x-%x", random[:4], random[4:6], random[6:8], random[8:10], random[10:])
}

// quoted writes a key as a structured string of HTTP.
func quoted(key string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(key) + `"`
}
