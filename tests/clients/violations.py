"""Programs that publish data that violates a schema, and print what the error has: pointers, codes and sentences."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

QUEUE, JOB = "checked", "urn:babel:shop:order.placed"
SCHEMA: Mapping[str, Any] = {
    "$id": JOB,
    "type": "object",
    "required": ["order_id"],
    "properties": {"lines": {"items": {"properties": {"amount": {"type": "integer"}}}}},
}
PRINTED = [
    "schema_violation",
    '/data/lines/0/amount schema_violation data.lines.0.amount is not of type "integer".',
    "/data/order_id schema_violation data.order_id is required.",
]
"""The code of the error, and what it has of each place, in the order of the text."""

PROGRAMS: Mapping[str, str] = {
    "python": """
from babelgate_client import Client, ProblemError

with Client("URL") as client:
    try:
        client.publish("QUEUE", "JOB", {"lines": [{"amount": "x"}]})
    except ProblemError as problem:
        print(problem.code)
        for each in problem.errors:
            print(each["pointer"], each["code"], each["detail"])
""",
    "typescript": """
import { Client, ProblemError } from "babelgate-client";

const client = new Client({ url: "URL" });
try {
  await client.publish("QUEUE", "JOB", { lines: [{ amount: "x" }] });
} catch (problem) {
  if (!(problem instanceof ProblemError)) throw problem;
  console.log(problem.code);
  for (const each of problem.errors) console.log(each.pointer, each.code, each.detail);
}
""",
    "php": """<?php
require 'vendor/autoload.php';

use Babelgate\\Client\\Client;
use Babelgate\\Client\\ProblemException;

try {
    (new Client('URL'))->publish('QUEUE', 'JOB', ['lines' => [['amount' => 'x']]]);
} catch (ProblemException $problem) {
    echo $problem->problemCode, "\\n";
    foreach ($problem->errors as $each) {
        echo "{$each['pointer']} {$each['code']} {$each['detail']}\\n";
    }
}
""",
    "csharp": """
using System;
using System.Threading.Tasks;
using Babelgate.Client;

class Violate
{
    static async Task Main()
    {
        await using var client = new BabelgateClient("URL");
        try
        {
            await client.PublishAsync("QUEUE", new Message("JOB", new { lines = new[] { new { amount = "x" } } }));
        }
        catch (ProblemException problem)
        {
            Console.WriteLine(problem.Code);
            foreach (var each in problem.Errors)
                Console.WriteLine($"{each.Pointer} {each.Code} {each.Detail}");
        }
    }
}
""",
    "java": """
import io.babelgate.client.Client;
import io.babelgate.client.ProblemException;
import java.util.List;
import java.util.Map;

class Violate {
    public static void main(String[] arguments) {
        Client client = Client.builder().url("URL").build();
        try {
            client.publish("QUEUE", "JOB", Map.of("lines", List.of(Map.of("amount", "x"))));
        } catch (ProblemException problem) {
            System.out.println(problem.code());
            problem.errors().forEach(each ->
                    System.out.println(each.pointer() + " " + each.code() + " " + each.detail()));
        }
    }
}
""",
    "go": """
package main

import (
	"context"
	"errors"
	"fmt"
	"log"

	babelgate "github.com/babelgate/babelgate/clients/go"
)

func main() {
	client, err := babelgate.New("URL", babelgate.Options{})
	if err != nil {
		log.Fatal(err)
	}
	data := map[string]any{"lines": []any{map[string]any{"amount": "x"}}}
	_, err = client.Publish(context.Background(), "QUEUE", babelgate.Message{Job: "JOB", Data: data})
	var problem *babelgate.ProblemError
	if errors.As(err, &problem) {
		fmt.Println(problem.Code)
		for _, each := range problem.Errors {
			fmt.Println(each.Pointer, each.Code, each.Detail)
		}
	}
}
""",
}


def program(language: str, url: str) -> str:
    """The program in ``language`` for the gateway at ``url``."""
    return PROGRAMS[language].replace("URL", url).replace("QUEUE", QUEUE).replace("JOB", JOB).lstrip("\n")
