// Prints for each post whether the library of Standard Webhooks verifies it.
package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"

	webhook "github.com/standard-webhooks/standard-webhooks/libraries/go"
)

type post struct {
	Secret  string            `json:"secret"`
	Headers map[string]string `json:"headers"`
	Body    string            `json:"body"`
}

func main() {
	var posts []post
	if err := json.NewDecoder(os.Stdin).Decode(&posts); err != nil {
		panic(err)
	}
	for _, each := range posts {
		verifier, err := webhook.NewWebhook(each.Secret)
		if err != nil {
			panic(err)
		}
		headers := http.Header{}
		for name, value := range each.Headers {
			headers.Set(name, value)
		}
		fmt.Println(verifier.Verify([]byte(each.Body), headers) == nil)
	}
}
