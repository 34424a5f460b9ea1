// Produces, consumes and checks with the client. Prints one JSON object per line.
//
// Usage: conformance produce QUEUE PRODUCER COUNT | consume QUEUE LEASE_SECONDS CONCURRENCY [stream]
// | checks QUEUE | properties QUEUE REFUSING | options QUEUE JSON | letters QUEUE | redrive QUEUE | refusals JSON
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"sync"
	"syscall"
	"time"

	babelgate "github.com/babelgate/babelgate/clients/go"
	"github.com/babelgate/babelgate/clients/go/generated"
)

const (
	job         = "urn:babel:conformance:made"
	traceID     = "0f6d1d9e-2f0a-4b9e-8a39-0a4f9a3a7d10"
	traceparent = "00-0f6d1d9e2f0a4b9e8a390a4f9a3a7d10-00f067aa0ba902b7-01"
)

type facts = map[string]any

var printing sync.Mutex

func say(what facts) {
	text, err := json.Marshal(what)
	must(err)
	printing.Lock()
	defer printing.Unlock()
	fmt.Println(string(text))
}

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func connect() *babelgate.Client {
	client, err := babelgate.New("", babelgate.Options{})
	must(err)
	return client
}

func main() {
	command, queue, more := os.Args[1], os.Args[2], os.Args[3:]
	switch command {
	case "produce":
		count, err := strconv.Atoi(more[1])
		must(err)
		produce(queue, more[0], count)
	case "consume":
		seconds, err := strconv.ParseFloat(more[0], 64)
		must(err)
		concurrency, err := strconv.Atoi(more[1])
		must(err)
		consume(queue, time.Duration(seconds*float64(time.Second)), concurrency, len(more) > 2)
	case "properties":
		properties(queue, more[0])
	case "options":
		options(queue, more[0])
	case "letters":
		letters(queue)
	case "redrive":
		redrive(queue)
	case "refusals":
		refusals(queue)
	default:
		checks(queue)
	}
}

func produce(queue, producer string, count int) {
	ctx, client := context.Background(), connect()
	made := func(n int) babelgate.Message {
		return babelgate.Message{Job: job, Data: facts{"producer": producer, "n": n}}
	}
	var odd []int
	for n := range count {
		if n%2 == 1 {
			odd = append(odd, n)
			continue
		}
		receipt, err := client.Publish(ctx, queue, made(n))
		must(err)
		say(facts{"id": receipt.ID, "producer": producer, "n": n})
	}
	for len(odd) > 0 {
		part := odd[:min(10, len(odd))]
		odd = odd[len(part):]
		var messages []babelgate.Message
		for _, n := range part {
			messages = append(messages, made(n))
		}
		results, err := client.PublishBatch(ctx, queue, messages)
		must(err)
		for i, result := range results {
			must(result.Err())
			say(facts{"id": result.ID, "producer": producer, "n": part[i]})
		}
	}
}

type order struct {
	Producer     string  `json:"producer"`
	N            int     `json:"n"`
	SleepSeconds float64 `json:"sleep_seconds"`
	FailTimes    int64   `json:"fail_times"`
	Reject       bool    `json:"reject"`
}

func consume(queue string, lease time.Duration, concurrency int, stream bool) {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	handle := func(ctx context.Context, delivery *babelgate.Delivery) error {
		var data order
		if err := delivery.Decode(&data); err != nil {
			return err
		}
		select {
		case <-time.After(time.Duration(data.SleepSeconds * float64(time.Second))):
		case <-ctx.Done():
			return ctx.Err()
		}
		if data.Reject {
			return babelgate.Reject(errors.New("as the message says"))
		}
		if delivery.Attempts < data.FailTimes {
			return errors.New("as the message says")
		}
		id := delivery.Envelope.Meta.ID
		say(facts{
			"event": "handled", "id": id, "producer": data.Producer, "n": data.N, "attempts": delivery.Attempts,
		})
		return nil
	}
	options := babelgate.ConsumerOptions{Concurrency: concurrency, Lease: lease, Grace: 5 * time.Second, Stream: stream}
	must(connect().Consumer(queue, handle, options).Run(ctx))
	say(facts{"event": "stopped"})
}

func checks(queue string) {
	ctx, client := context.Background(), connect()
	found := facts{}
	data := func(n int) facts { return facts{"n": n} }
	receive := func(most int, lease time.Duration) []*babelgate.Delivery {
		wait := babelgate.ReceiveOptions{MaxMessages: most, Wait: 20 * time.Second, Lease: lease}
		deliveries, err := client.Receive(ctx, queue, wait)
		must(err)
		return deliveries
	}
	first := babelgate.Message{Job: job, Data: data(1), TraceID: traceID, Traceparent: traceparent}
	receipt, err := client.Publish(ctx, queue, first)
	must(err)
	found["published"] = receipt
	twice := babelgate.Message{Job: job, Data: data(2), IdempotencyKey: "once-" + receipt.ID}
	once, err := client.Publish(ctx, queue, twice)
	must(err)
	again, err := client.Publish(ctx, queue, twice)
	must(err)
	found["replayed"] = once.ID == again.ID
	results, err := client.PublishBatch(ctx, queue, []babelgate.Message{
		{Job: job, Data: data(3)}, {Data: data(4)}, {Job: job, Data: data(5)},
	})
	must(err)
	statuses := []int{}
	for _, result := range results {
		statuses = append(statuses, result.Status)
	}
	found["batch"] = statuses
	deliveries := receive(10, 30*time.Second)
	delivery := deliveries[0]
	found["received"] = facts{
		"id": delivery.Envelope.Meta.ID, "job": delivery.Envelope.Job, "trace_id": delivery.Envelope.TraceID,
		"data": delivery.Envelope.Data, "attempts": delivery.Attempts, "redelivered": delivery.Redelivered,
		"traceparent": delivery.Traceparent(),
	}
	extended, err := client.Extend(ctx, 5*time.Minute, delivery)
	must(err)
	found["extended"] = extended.Results[0].LeaseExpiresAt > delivery.LeaseExpiresAt
	now := time.Duration(0)
	why := &babelgate.Failure{Message: "no", Exception: "NoError"}
	_, err = client.Nack(ctx, babelgate.NackOptions{Delay: &now, Error: why}, delivery)
	must(err)
	redelivered := receive(1, 30*time.Second)[0]
	found["nacked_attempts"] = redelivered.Attempts
	acked, err := client.Ack(ctx, append(deliveries[1:], redelivered)...)
	must(err)
	found["acked"] = acked.Settled
	_, err = client.Ack(ctx, &babelgate.Delivery{Queue: queue, AckToken: "nonsense"})
	var problem *babelgate.ProblemError
	if errors.As(err, &problem) {
		found["problem"] = facts{"status": problem.Status, "code": problem.Code, "retryable": problem.Retryable}
	}
	_, err = client.Publish(ctx, queue, babelgate.Message{Job: job, Data: data(6)})
	must(err)
	late := receive(1, time.Second)[0]
	time.Sleep(1200 * time.Millisecond)
	taken := receive(1, 30*time.Second)[0]
	if _, err = client.Ack(ctx, late); babelgate.IsLeaseLost(err) && errors.As(err, &problem) {
		found["lease_lost"] = problem.Code
	}
	_, err = client.Ack(ctx, taken)
	must(err)
	nowhere, err := babelgate.New("http://127.0.0.1:9", babelgate.Options{RetryFor: -1})
	must(err)
	_, err = nowhere.Publish(ctx, queue, babelgate.Message{Job: job, Data: data(7)})
	var unreachable *babelgate.UnreachableError
	if errors.As(err, &unreachable) {
		found["not_found_or_unreachable"] = "UnreachableError"
	}
	say(found)
}

// properties: queue takes broker properties, and refusing takes none.
func properties(queue, refusing string) {
	ctx, client := context.Background(), connect()
	received := func(name string) babelgate.BrokerProperties {
		wait := babelgate.ReceiveOptions{Wait: 20 * time.Second, Lease: 30 * time.Second}
		deliveries, err := client.Receive(ctx, name, wait)
		must(err)
		_, err = client.Ack(ctx, deliveries[0])
		must(err)
		return deliveries[0].BrokerProperties
	}
	message := func(n int, properties babelgate.BrokerProperties) babelgate.Message {
		return babelgate.Message{Job: job, Data: facts{"n": n}, BrokerProperties: properties}
	}
	single := babelgate.BrokerProperties{"TimeToLive": 3600, "ReplyTo": "replies"}
	entry := babelgate.BrokerProperties{"TimeToLive": 86400.5, "To": "warehouse"}
	found := facts{}
	_, err := client.Publish(ctx, queue, message(1, single))
	must(err)
	found["published"] = received(queue)
	results, err := client.PublishBatch(ctx, queue, []babelgate.Message{message(2, entry)})
	must(err)
	must(results[0].Err())
	found["batch"] = received(queue)
	_, err = client.Publish(ctx, refusing, message(3, single))
	var problem *babelgate.ProblemError
	if errors.As(err, &problem) {
		found["refused"] = facts{"status": problem.Status, "code": problem.Code}
	}
	results, err = client.PublishBatch(ctx, refusing, []babelgate.Message{message(4, entry)})
	must(err)
	found["refused_in_batch"] = facts{"status": results[0].Status, "code": results[0].Code}
	_, err = client.Publish(ctx, refusing, message(5, nil))
	must(err)
	without := facts{}
	for name, value := range received(refusing) {
		without[name] = value
	}
	found["without"] = without
	say(found)
}

// options publishes without options, then with all that are given, alone and in a batch.
func options(queue, given string) {
	ctx, client := context.Background(), connect()
	var all struct {
		TraceID        string            `json:"trace_id"`
		DelaySeconds   float64           `json:"delay_seconds"`
		DeliverAt      int64             `json:"deliver_at"`
		TTLSeconds     float64           `json:"ttl_seconds"`
		Priority       *int              `json:"priority"`
		OrderingKey    string            `json:"ordering_key"`
		Headers        map[string]string `json:"headers"`
		IdempotencyKey string            `json:"idempotency_key"`
		Traceparent    string            `json:"traceparent"`
		Lang           string            `json:"lang"`
		Ext            map[string]any    `json:"ext"`
	}
	must(json.Unmarshal([]byte(given), &all))
	_, err := client.Publish(ctx, queue, babelgate.Message{Job: job, Data: facts{"n": 0}})
	must(err)
	message := babelgate.Message{
		Job: job, Data: facts{"n": 1}, TraceID: all.TraceID, Delay: time.Duration(all.DelaySeconds * float64(time.Second)),
		OrderingKey: all.OrderingKey, Headers: all.Headers, IdempotencyKey: all.IdempotencyKey,
		Traceparent: all.Traceparent, Lang: all.Lang, Ext: all.Ext, Priority: all.Priority,
		TTL: time.Duration(all.TTLSeconds * float64(time.Second)),
	}
	if all.DeliverAt != 0 {
		message.DeliverAt = time.UnixMilli(all.DeliverAt)
	}
	_, err = client.Publish(ctx, queue, message)
	must(err)
	message.Data, message.IdempotencyKey = facts{"n": 2}, all.IdempotencyKey+"-batch"
	results, err := client.PublishBatch(ctx, queue, []babelgate.Message{message})
	must(err)
	say(facts{"batch": []int{results[0].Status}})
}

// letters: queue has five dead letters.
func letters(queue string) {
	ctx, dead := context.Background(), connect().DeadLetters(queue)
	list := func(options babelgate.ListOptions) *generated.DeadLetterPage {
		page, err := dead.List(ctx, options)
		must(err)
		return page
	}
	found := facts{}
	page := list(babelgate.ListOptions{Limit: 2})
	rest := list(babelgate.ListOptions{Limit: 10, Cursor: *page.NextCursor})
	found["pages"] = []any{len(page.DeadLetters), len(rest.DeadLetters), rest.NextCursor}
	var ofJob []int
	for _, each := range []string{job, "urn:another"} {
		conditions := babelgate.DeadLetterConditions{Job: each, Reason: "failed"}
		ofJob = append(ofJob, len(list(babelgate.ListOptions{DeadLetterConditions: conditions}).DeadLetters))
	}
	found["of_job"] = ofJob
	var ids []string
	for _, letter := range append(page.DeadLetters, rest.DeadLetters...) {
		ids = append(ids, letter.LetterId)
	}
	shown, err := dead.Show(ctx, ids[0], "")
	must(err)
	found["shown"] = facts{"letter_id": shown.LetterId == ids[0], "error": shown.Error}
	every := babelgate.DeadLetterConditions{Job: job}
	dry, err := dead.Redrive(ctx, babelgate.RedriveOptions{DeadLetterConditions: every, Limit: 4, DryRun: true})
	must(err)
	found["dry"] = []int64{dry.Matched, dry.Redriven}
	redrive, err := dead.Redrive(ctx, babelgate.RedriveOptions{IDs: ids[:1]})
	must(err)
	found["redriven"] = redrive.Redriven
	one, err := dead.RedriveOne(ctx, ids[1], babelgate.RedriveOneOptions{Data: facts{"n": 100}})
	must(err)
	found["one"] = facts{"to_queue": one.ToQueue == queue, "edited": one.Edited}
	removal, err := dead.Delete(ctx, ids[2], "nonsense")
	must(err)
	found["deleted"] = []int64{removal.Removed, removal.Failed}
	counted, err := dead.Purge(ctx, true)
	must(err)
	found["counted"] = []int64{counted.Matched, counted.Removed}
	purge, err := dead.Purge(ctx, false)
	must(err)
	found["purged"] = purge.Removed
	_, err = dead.Show(ctx, ids[0], "")
	var problem *babelgate.ProblemError
	if errors.As(err, &problem) {
		found["gone"] = problem.Code
	}
	say(found)
}

// redrive: the gateway breaks the connection.
func redrive(queue string) {
	_, err := connect().DeadLetters(queue).Redrive(context.Background(), babelgate.RedriveOptions{})
	var unreachable *babelgate.UnreachableError
	if errors.As(err, &unreachable) {
		say(facts{"outcome_unknown": unreachable.OutcomeUnknown})
	}
}

// refusals: what is said of each URL, token and traceparent that is given; null if nothing is.
func refusals(given string) {
	var all struct{ URLs, Tokens, Traceparents []string }
	must(json.Unmarshal([]byte(given), &all))
	text := func(err error) any {
		if err == nil {
			return nil
		}
		return err.Error()
	}
	found := map[string][]any{}
	for _, each := range all.URLs {
		_, err := babelgate.New(each, babelgate.Options{})
		found["urls"] = append(found["urls"], text(err))
	}
	for _, each := range all.Tokens {
		_, err := babelgate.New("", babelgate.Options{Token: each})
		found["tokens"] = append(found["tokens"], text(err))
	}
	for _, each := range all.Traceparents {
		message := babelgate.Message{Job: job, Data: facts{}, Traceparent: each}
		_, err := connect().Publish(context.Background(), "q", message)
		found["traceparents"] = append(found["traceparents"], text(err))
	}
	say(facts{"urls": found["urls"], "tokens": found["tokens"], "traceparents": found["traceparents"]})
}
