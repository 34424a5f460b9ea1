// Publishes and receives events with the official SDK for Go, over the HTTP API of a gateway.
//
// It reads an event in the JSON format from each line of its input, and publishes all of them to each of the URLs. Or it
// receives once from each of the URLs, and prints the URL and the events of the answer, an array a line.
//
//	cloudevents send binary|structured|batched URL...
//	cloudevents receive one|many URL...
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"log"
	"net/http"
	"os"

	cloudevents "github.com/cloudevents/sdk-go/v2"
	"github.com/cloudevents/sdk-go/v2/binding"
	"github.com/cloudevents/sdk-go/v2/event"
	cehttp "github.com/cloudevents/sdk-go/v2/protocol/http"
)

func main() {
	if len(os.Args) < 4 {
		log.Fatal("usage: cloudevents send binary|structured|batched URL..., or cloudevents receive one|many URL...")
	}
	verb, how, urls := os.Args[1], os.Args[2], os.Args[3:]
	events, err := read(verb == "send")
	for _, url := range urls {
		if err == nil && verb == "send" {
			err = send(how, url, events)
		} else if err == nil {
			err = receive(how, url)
		}
	}
	if err != nil {
		log.Fatal(err)
	}
}

func send(mode, url string, events []event.Event) error {
	if mode == "batched" {
		request, err := cehttp.NewHTTPRequestFromEvents(context.Background(), url, events)
		if err != nil {
			return err
		}
		answer, err := http.DefaultClient.Do(request)
		if err != nil {
			return err
		}
		defer answer.Body.Close()
		if answer.StatusCode != http.StatusCreated {
			return fmt.Errorf("answered %d", answer.StatusCode)
		}
		return nil
	}
	client, err := cloudevents.NewClientHTTP(cloudevents.WithTarget(url))
	if err != nil {
		return err
	}
	ctx := context.Background()
	if mode == "structured" {
		ctx = binding.WithForceStructured(ctx)
	}
	for _, each := range events {
		if result := client.Send(ctx, each); !cloudevents.IsACK(result) {
			return result
		}
	}
	return nil
}

func read(wanted bool) ([]event.Event, error) {
	var events []event.Event
	if !wanted {
		return events, nil
	}
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		var made event.Event
		if err := json.Unmarshal(lines.Bytes(), &made); err != nil {
			return nil, err
		}
		events = append(events, made)
	}
	return events, lines.Err()
}

func receive(count, url string) error {
	request, err := http.NewRequest(http.MethodPost, url, nil)
	if err != nil {
		return err
	}
	accepted := map[string]string{"one": event.ApplicationCloudEventsJSON, "many": event.ApplicationCloudEventsBatchJSON}
	request.Header.Set("Accept", accepted[count])
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	var events []event.Event
	if count == "many" {
		events, err = cehttp.NewEventsFromHTTPResponse(answer)
	} else {
		var made *event.Event
		if made, err = cehttp.NewEventFromHTTPResponse(answer); err == nil {
			events = []event.Event{*made}
		}
	}
	if err != nil {
		return err
	}
	for _, each := range events {
		if err := each.Validate(); err != nil {
			return err
		}
	}
	line, err := json.Marshal([]any{url, events})
	if err != nil {
		return err
	}
	fmt.Println(string(line))
	return nil
}
