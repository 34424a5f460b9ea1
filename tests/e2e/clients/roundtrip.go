// Publishes, receives and settles with the client that openapi-generator made, and prints what the client read.
// Any error ends it with status 1. It needs no more than Go 1.18.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"log"
	"os"

	babelgate "github.com/example/babelgate"
)

const queue = "emails"

func main() {
	configuration := babelgate.NewConfiguration()
	configuration.Servers = babelgate.ServerConfigurations{{URL: os.Args[1]}}
	client := babelgate.NewAPIClient(configuration)
	ctx := context.Background()
	read := map[string]interface{}{}

	_, _, err := client.ConsumeAPI.AckMessages(ctx, queue).AckRequest(*babelgate.NewAckRequest([]string{"x"})).Execute()
	var failure *babelgate.GenericOpenAPIError
	if errors.As(err, &failure) {
		read["code_of_a_bad_token"] = failure.Model().(babelgate.Problem).Code
	}

	receipt, _, err := client.PublishAPI.PublishMessage(ctx, queue).Draft(draft("one")).Execute()
	check(err)
	read["id"], read["created_at"] = receipt.Id, receipt.CreatedAt

	message := receive(ctx, client)
	read["received_id"], read["received_created_at"] = message.Envelope.Meta.GetId(), message.Envelope.Meta.GetCreatedAt()
	read["received_data"], read["lease_expires_at"] = message.Envelope.Data, message.LeaseExpiresAt
	read["received_ext"] = message.Envelope.Meta.AdditionalProperties["ext"]

	extend := babelgate.NewExtendRequest([]string{message.AckToken})
	extend.SetLeaseSeconds(600)
	extended, _, err := client.ConsumeAPI.ExtendMessages(ctx, queue).ExtendRequest(*extend).Execute()
	check(err)
	read["extended_to"] = extended.Results[0].GetLeaseExpiresAt()

	acked, _, err := client.ConsumeAPI.AckMessages(ctx, queue).AckRequest(*babelgate.NewAckRequest([]string{message.AckToken})).Execute()
	check(err)
	read["acked"] = acked.Settled

	bad := *babelgate.NewDraft("", map[string]interface{}{})
	batch, _, err := client.PublishAPI.PublishBatch(ctx, queue).Draft([]babelgate.Draft{draft("two"), bad}).Execute()
	check(err)
	read["batch"] = []int64{batch.Accepted, batch.Failed, batch.Results[1].Status}

	message = receive(ctx, client)
	rejected, _, err := client.ConsumeAPI.RejectMessages(ctx, queue).RejectRequest(*babelgate.NewRejectRequest([]string{message.AckToken})).Execute()
	check(err)
	read["rejected"] = rejected.Settled

	page, _, err := client.DeadLettersAPI.ListDeadLetters(ctx, queue).After(receipt.CreatedAt).Execute()
	check(err)
	read["failed_at"] = page.DeadLetters[0].GetFailedAt()

	state, _, err := client.QueuesAPI.GetQueue(ctx, queue).Execute()
	check(err)
	read["depth"], read["in_flight"], read["dead"] = state.Stats.GetDepth(), state.Stats.GetInFlight(), state.Stats.GetDead()

	ready, _, err := client.OperationsAPI.Readyz(ctx).Verbose("true").Execute()
	check(err)
	read["ready"] = ready.Status

	check(json.NewEncoder(os.Stdout).Encode(read))
}

func draft(text string) babelgate.Draft {
	made := babelgate.NewDraft("urn:babel:emails:welcome", map[string]interface{}{"text": text})
	made.SetMeta(babelgate.DraftMeta{Ext: map[string]interface{}{"vendor": 1}})
	return *made
}

func receive(ctx context.Context, client *babelgate.APIClient) babelgate.ReceivedMessage {
	request := babelgate.NewReceiveRequest()
	request.SetMaxMessages(1)
	request.SetWaitSeconds(10)
	received, _, err := client.ConsumeAPI.ReceiveMessages(ctx, queue).ReceiveRequest(*request).Execute()
	check(err)
	if len(received.Messages) != 1 {
		log.Fatalf("received %d messages, expected 1", len(received.Messages))
	}
	return received.Messages[0]
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
