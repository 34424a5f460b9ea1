package babelgate

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/babelgate/babelgate/clients/go/generated"
)

// redriveTime is how long a gateway may redrive before it answers.
const redriveTime = time.Minute

// DeadLetters are those of one queue. A redrive, a deletion and a purge are repeated only if they changed nothing.
type DeadLetters struct {
	client *Client
	queue  string
}

// DeadLetters of queue: list, show, redrive, delete and purge them.
func (c *Client) DeadLetters(queue string) *DeadLetters { return &DeadLetters{c, queue} }

// DeadLetterConditions choose the dead letters that meet all of them; a zero value is none.
type DeadLetterConditions struct {
	Job     string `json:"job,omitempty"`
	Reason  string `json:"reason,omitempty"` // failed, unknown_urn or poison
	Before  int64  `json:"before,omitempty"` // when it was dead-lettered, in Unix milliseconds
	After   int64  `json:"after,omitempty"`
	TraceID string `json:"trace_id,omitempty"`
}

// ListOptions of a page of dead letters. Zero values mean the defaults.
type ListOptions struct {
	DeadLetterConditions
	Limit  int    // 1 to 1,000
	Cursor string // NextCursor of the page before
}

// List returns a page of dead letters, oldest first.
func (d *DeadLetters) List(ctx context.Context, options ListOptions) (*generated.DeadLetterPage, error) {
	query := url.Values{}
	for name, value := range map[string]string{
		"job": options.Job, "reason": options.Reason, "trace_id": options.TraceID, "cursor": options.Cursor,
	} {
		if value != "" {
			query.Set(name, value)
		}
	}
	for name, value := range map[string]int64{
		"before": options.Before, "after": options.After, "limit": int64(options.Limit),
	} {
		if value != 0 {
			query.Set(name, strconv.FormatInt(value, 10))
		}
	}
	page := &generated.DeadLetterPage{}
	return page, d.get(ctx, "dead-letters", query, page)
}

// Show returns one dead letter. The search begins at cursor; empty: at the oldest.
func (d *DeadLetters) Show(ctx context.Context, letterID, cursor string) (*generated.DeadLetter, error) {
	letter := &generated.DeadLetter{}
	return letter, d.get(ctx, "dead-letters/"+url.PathEscape(letterID), cursorQuery(cursor), letter)
}

// RedriveOptions say which dead letters are sent back, and how. Zero values mean the defaults.
type RedriveOptions struct {
	DeadLetterConditions          // not with IDs
	IDs                  []string // the LetterId of 1 to 1,000
	Limit                int      // default 1,000
	ToQueue              string   // default: their own queue
	DryRun               bool     // only count
	Force                bool     // also records without a valid envelope, to another queue
	PerSecond            float64  // the highest rate, at which Limit letters take at most 60 s
}

// Redrive sends dead letters back: each is published, and removed when the broker has stored the message.
func (d *DeadLetters) Redrive(ctx context.Context, options RedriveOptions) (*generated.RedriveResult, error) {
	order := struct {
		IDs       []string              `json:"ids,omitempty"`
		Filter    *DeadLetterConditions `json:"filter,omitempty"`
		Limit     int                   `json:"limit,omitempty"`
		ToQueue   string                `json:"to_queue,omitempty"`
		DryRun    bool                  `json:"dry_run,omitempty"`
		Force     bool                  `json:"force,omitempty"`
		PerSecond float64               `json:"per_second,omitempty"`
	}{
		IDs: options.IDs, Limit: options.Limit, ToQueue: options.ToQueue, DryRun: options.DryRun, Force: options.Force,
		PerSecond: options.PerSecond,
	}
	if options.DeadLetterConditions != (DeadLetterConditions{}) {
		order.Filter = &options.DeadLetterConditions
	}
	result := &generated.RedriveResult{}
	return result, d.post(ctx, "dead-letters:redrive", order, redriveTime, result)
}

// RedriveOneOptions say how one dead letter is sent back: with new Data, or with a whole new Body, or unchanged.
type RedriveOneOptions struct {
	Data, Body any
	ToQueue    string // default: its own queue
	Force      bool
	Cursor     string // where the search begins; default: at the oldest
}

// RedriveOne sends one dead letter back, edited or unchanged.
func (d *DeadLetters) RedriveOne(
	ctx context.Context, letterID string, options RedriveOneOptions,
) (*generated.RedrivenLetter, error) {
	order := map[string]any{}
	edit := map[string]any{}
	if options.Data != nil {
		edit["data"] = options.Data
	}
	if options.Body != nil {
		edit["body"] = options.Body
	}
	if len(edit) > 0 {
		order["edit"] = edit
	}
	if options.ToQueue != "" {
		order["to_queue"] = options.ToQueue
	}
	if options.Force {
		order["force"] = true
	}
	action := withQuery("dead-letters/"+url.PathEscape(letterID)+":redrive", cursorQuery(options.Cursor))
	letter := &generated.RedrivenLetter{}
	return letter, d.post(ctx, action, order, 0, letter)
}

// Delete removes 1 to 1,000 dead letters; one result for each.
func (d *DeadLetters) Delete(ctx context.Context, letterIDs ...string) (*generated.Removal, error) {
	removal := &generated.Removal{}
	return removal, d.post(ctx, "dead-letters:delete", map[string]any{"ids": letterIDs}, 0, removal)
}

// Purge removes all dead letters; with dryRun it only counts them.
func (d *DeadLetters) Purge(ctx context.Context, dryRun bool) (*generated.PurgeResult, error) {
	result := &generated.PurgeResult{}
	return result, d.post(ctx, "dead-letters:purge", map[string]any{"dry_run": dryRun}, 0, result)
}

func (d *DeadLetters) get(ctx context.Context, action string, query url.Values, out any) error {
	request := call{method: http.MethodGet, path: pathOf(d.queue, withQuery(action, query))}
	return d.client.do(ctx, request, out, d.client.retryFor)
}

func (d *DeadLetters) post(ctx context.Context, action string, order any, wait time.Duration, out any) error {
	body, err := json.Marshal(order)
	if err != nil {
		return err
	}
	request := call{
		method: http.MethodPost, path: pathOf(d.queue, action), body: body, wait: wait, repeat: unlessWritten,
	}
	return d.client.do(ctx, request, out, d.client.retryFor)
}

func cursorQuery(cursor string) url.Values {
	if cursor == "" {
		return nil
	}
	return url.Values{"cursor": {cursor}}
}

func withQuery(action string, query url.Values) string {
	if len(query) == 0 {
		return action
	}
	return action + "?" + query.Encode()
}
