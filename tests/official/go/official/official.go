// Package official is what the programs around clients for Go have in common: a message is a JSON object a line.
package official

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
)

// Line is a message. What Typed makes of a value that is no text is a text that begins with its type.
type Line struct {
	Payload    []byte            `json:"payload"`
	Headers    map[string]any    `json:"headers"`
	Properties map[string]string `json:"properties"`
	Odd        bool              `json:"odd,omitempty"`
}

// Check ends the program with an error.
func Check(err error) {
	if err != nil {
		panic(err)
	}
}

// Typed is a value as a client read it: a text as it is, another one behind its type.
func Typed(value any) any {
	if text, isText := value.(string); isText {
		return text
	}
	return fmt.Sprintf("%T %v", value, value)
}

// TypedAll is the table of Typed values.
func TypedAll(values map[string]any) map[string]any {
	typed := map[string]any{}
	for name, value := range values {
		typed[name] = Typed(value)
	}
	return typed
}

// With adds odd to the headers of a line that asks for them.
func (line Line) With(odd map[string]any) map[string]any {
	headers := map[string]any{}
	for name, value := range line.Headers {
		headers[name] = value
	}
	if line.Odd {
		for name, value := range odd {
			headers[name] = value
		}
	}
	return headers
}

// Consume settles messages by the verb ("consume", "return" or "reject") and prints them. It ends after one message, or
// with its context if the verb is "consume".
type Consume func(ctx context.Context, url, queue, verb string, print func(Line))

// Run calls produce with the lines of the standard input, or consume until the standard input has a line. Arguments: the
// verb, the URL, the queue, and more for produce.
func Run(produce func(url, queue string, lines []Line), consume Consume) {
	verb, url, queue := os.Args[1], os.Args[2], os.Args[3]
	if verb == "produce" {
		input := bufio.NewScanner(os.Stdin)
		input.Buffer(nil, 1<<24)
		var lines []Line
		for input.Scan() {
			var line Line
			Check(json.Unmarshal(input.Bytes(), &line))
			lines = append(lines, line)
		}
		produce(url, queue, lines)
		return
	}
	ctx, end := context.WithCancel(context.Background())
	go func() {
		_, _ = bufio.NewReader(os.Stdin).ReadByte()
		end()
	}()
	output := json.NewEncoder(os.Stdout)
	consume(ctx, url, queue, verb, func(line Line) { Check(output.Encode(line)) })
}
