// Publishes a draft and a batch of drafts with the client that oapi-codegen made, and prints the id of the receipt.
package main

import (
	"context"
	"fmt"
	"log"
	"os"

	"example.com/client/api"
)

func main() {
	client, err := api.NewClientWithResponses(os.Args[1])
	if err != nil {
		log.Fatal(err)
	}
	delay := 60.0
	draft := api.Draft{Job: "urn:babel:emails:welcome", Data: map[string]interface{}{"to": "ada@example.com"}, DelaySeconds: &delay}
	answer, err := client.PublishMessageWithResponse(context.Background(), "emails", nil, draft)
	if err != nil || answer.JSON201 == nil {
		log.Fatal(err, answer)
	}
	batch, err := client.PublishBatchWithResponse(context.Background(), "emails", []api.Draft{draft, {}})
	if err != nil || batch.JSON207 == nil {
		log.Fatal(err, batch)
	}
	fmt.Println(len(answer.JSON201.Id), batch.JSON207.Accepted, batch.JSON207.Failed)
}
