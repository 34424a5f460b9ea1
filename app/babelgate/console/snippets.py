"""Code that publishes a message, for people to copy: a command, and a program in the language of each client."""

from __future__ import annotations

import json
import re
import shlex
from typing import NamedTuple

from babelgate.console.bodies import Draft

_SURROGATES = re.compile(r"\\u(d[89ab][0-9a-f]{2})\\u(d[c-f][0-9a-f]{2})")
"""A character beyond U+FFFF as JSON escapes it. In Python these are two characters, and Go has no such escapes."""


class Snippet(NamedTuple):
    """``label``: the language; ``code``: a whole program."""

    label: str
    code: str


def curl(url: str, queue: str, payload: str, *, has_token: bool) -> str:
    """The command that publishes ``payload``: JSON, or ``@`` and the name of a file. ``url``: of the gateway."""
    token = '  -H "Authorization: Bearer $BABELGATE_TOKEN" \\\n' if has_token else ""
    return (
        f"curl {shlex.quote(f'{url}/queues/{queue}/messages')} \\\n"
        f"{token}"
        "  -H 'Content-Type: application/json' \\\n"
        f"  --data-binary {shlex.quote(payload)}\n"
    )


def programs(url: str, queue: str, draft: Draft) -> list[Snippet]:
    """The programs. The token is that of ``BABELGATE_TOKEN``, which all clients read."""
    given = {"url": url, "queue": queue, "job": draft.job, "trace_id": draft.trace_id or ""}
    texts = {name: _escaped(text) for name, text in given.items()}
    data = bytes(draft.data).decode()
    escaped = {**texts, "data": _escaped(data)}
    joined = {name: _SURROGATES.sub(_joined, text) for name, text in escaped.items()}
    return [
        Snippet("Python", _PYTHON.format_map(joined)),
        Snippet("TypeScript", _TYPESCRIPT.format_map(escaped)),
        Snippet("PHP", _PHP.format_map({name: _of_php(text) for name, text in {**given, "data": data}.items()})),
        Snippet("Java", _JAVA.format_map(escaped)),
        Snippet("C#", _CSHARP.format_map(escaped)),
        Snippet("Go", _GO.format_map(joined)),
    ]


def _escaped(text: str) -> str:
    """``text`` as a literal between double quotes, in ASCII, which all these languages but PHP read alike."""
    return json.dumps(text).replace("\x7f", "\\u007f")


def _of_php(text: str) -> str:
    """``text`` as a literal of PHP. A browser does not copy each control character as it is, so these are escaped."""
    if text.isprintable():
        inner = text.replace("\\", "\\\\").replace("'", "\\'")
        return f"'{inner}'"
    inner = "".join(_in_double_quotes(each) for each in text)
    return f'"{inner}"'


def _in_double_quotes(character: str) -> str:
    if character in '"$\\':
        return f"\\{character}"
    return character if character.isprintable() else f"\\u{{{ord(character):x}}}"


def _joined(pair: re.Match[str]) -> str:
    high, low = int(pair[1], 16), int(pair[2], 16)
    return f"\\U{0x10000 + ((high - 0xD800) << 10) + (low - 0xDC00):08x}"


_PYTHON = """\
import json

from babelgate_client import Client

data = json.loads({data})
with Client({url}) as client:
    receipt = client.publish({queue}, {job}, data, trace_id={trace_id})
    print(receipt.id)
"""
_TYPESCRIPT = """\
import {{ Client }} from "babelgate-client";

const client = new Client({{ url: {url} }});
const data = JSON.parse({data});
const receipt = await client.publish({queue}, {job}, data, {{ traceId: {trace_id} }});
console.log(receipt.id);
"""
_PHP = """\
<?php

require 'vendor/autoload.php';

use Babelgate\\Client\\Client;

$client = new Client({url});
$data = json_decode({data});
$receipt = $client->publish({queue}, {job}, $data, traceId: {trace_id});
echo $receipt->getId(), PHP_EOL;
"""
_JAVA = """\
import com.fasterxml.jackson.databind.ObjectMapper;
import io.babelgate.client.Client;
import io.babelgate.client.Message;

class PublishAgain {{
    public static void main(String[] arguments) throws Exception {{
        Client client = Client.builder().url({url}).build();
        var data = new ObjectMapper().readTree({data});
        var receipt = client.publish({queue}, Message.of({job}, data).traceId({trace_id}));
        System.out.println(receipt.getId());
    }}
}}
"""
_CSHARP = """\
using System;
using System.Text.Json;
using System.Threading.Tasks;
using Babelgate.Client;

class PublishAgain
{{
    static async Task Main()
    {{
        await using var client = new BabelgateClient({url});
        var data = JsonSerializer.Deserialize<JsonElement>({data});
        var message = new Message({job}, data) {{ TraceId = {trace_id} }};
        var receipt = await client.PublishAsync({queue}, message);
        Console.WriteLine(receipt.Id);
    }}
}}
"""
_GO = """\
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log"

	babelgate "github.com/babelgate/babelgate/clients/go"
)

func main() {{
	client, err := babelgate.New({url}, babelgate.Options{{}})
	if err != nil {{
		log.Fatal(err)
	}}
	receipt, err := client.Publish(context.Background(), {queue}, babelgate.Message{{
		Job:     {job},
		Data:    json.RawMessage({data}),
		TraceID: {trace_id},
	}})
	if err != nil {{
		log.Fatal(err)
	}}
	fmt.Println(receipt.ID)
}}
"""
