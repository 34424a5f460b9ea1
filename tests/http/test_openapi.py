"""The OpenAPI document is valid and current, and clients can be generated from it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import jsonschema
import pytest
from openapi_spec_validator import validate

from babelgate.brokers.binding import Outgoing
from babelgate.envelope.options import OPTIONS
from tests.harness.operations import DOCUMENT, NOTHING

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def exported():
    """The document in the repository."""
    return DOCUMENT


def operations(document):
    for path, item in document["paths"].items():
        for method, operation in item.items():
            if method != "parameters":
                yield path, method, operation


async def test_the_export_is_what_is_served(serve, connect, exported):
    """By a second gateway of the same process, too."""
    for _ in range(2):
        client = await connect(await serve())
        assert (await client.get("/openapi.json")).json() == exported, "run `make openapi`"


def test_the_command_writes_the_export():
    command = [sys.executable, "-m", "babelgate.http.openapi"]
    made = subprocess.run(command, cwd=ROOT, check=True, capture_output=True).stdout
    assert made == (ROOT / "openapi" / "openapi.yaml").read_bytes(), "run `make openapi`"


def test_it_is_valid(exported):
    validate(exported)
    assert exported["openapi"].startswith("3.1.")


def test_operations_have_names_and_words(exported):
    found = list(operations(exported))
    names = [operation["operationId"] for _, _, operation in found]
    assert len(set(names)) == len(names)
    tags = {tag["name"] for tag in exported["tags"]}
    for path, _, operation in found:
        assert operation["summary"] and operation["description"], path
        assert set(operation["tags"]) <= tags
    assert list(exported["paths"]["/queues/{queue}/messages:receive"])[1:] == ["post", "get"]


def test_every_operation_declares_its_failures(exported):
    for path, method, operation in operations(exported):
        declared = set(operation["responses"])
        expected = {"400", "408", "431", "500"}
        if not operation["operationId"].endswith("z"):
            # A token is of no need for a probe, and a wrong one does no harm.
            expected |= {"401", "403"}
        if method == "post":
            expected |= {"413", "415"}
        if "{queue}" in path:
            expected |= {"404", "422", "429", "502", "503", "504"}
        assert expected <= declared, path
        problems = {status for status in declared if status >= "400"}
        assert all(operation["responses"][status]["$ref"].endswith(status) for status in problems)


def nodes(node, path=""):
    """Every mapping of a document with its JSON pointer."""
    if isinstance(node, dict):
        yield path, node
        for name, value in node.items():
            yield from nodes(value, f"{path}/{name}")
    elif isinstance(node, list):
        for index, item in enumerate(node):
            yield from nodes(item, f"{path}/{index}")


def test_generated_clients_have_what_they_need(exported):
    found = list(nodes(exported))
    # A default is sent with every request by the clients of one generator, and demanded of their users by another's.
    assert [path for path, node in found if "default" in node] == []
    # An object of which nothing is said has no members at all in TypeScript.
    said = {"properties", "additionalProperties"}
    assert [path for path, node in found if node.get("type") == "object" and not said & node.keys()] == []
    # A union is a wrapper around a class per case, or in PHP one class with the members that all cases require.
    cases = {path: [case for case in union(node) if case != {"type": "null"}] for path, node in found}
    unions = [path for path, several in cases.items() if len(several) > 1]
    assert unions == ["/components/schemas/Problem/properties/actual"]
    # Where a schema has a type or null, generators name a class of its own: only in answers, which need it.
    optional = [
        name for name, kind in exported["components"]["schemas"]["Draft"]["properties"].items() if "null" in kinds(kind)
    ]
    assert optional == []
    # openapi-python-client asks for the type of an array with parameters, which Python refuses, when there are several.
    bodies = [operation.get("requestBody", {}).get("content", {}) for _, _, operation in operations(exported)]
    assert [content for content in bodies if len(content) > 1 and "array" in str(content)] == []
    # It leaves out a schema with an array of which it does not know the items, and every member that names it.
    assert [path for path, node in found if "array" in kinds(node) and "items" not in node] == []
    # A media type that is not JSON, nor one of three others, has no body there: the rest is in an extension.
    assert [kind for content in bodies for kind in content if not kind.endswith("json")] == []
    received = exported["paths"]["/queues/{queue}/messages:receive"]["post"]["responses"]["200"]
    assert [*received["content"]] == ["application/json"]


def union(node):
    """The cases of a schema that has cases."""
    return node.get("oneOf", node.get("anyOf", ()))


def kinds(node):
    """The JSON types that a schema names."""
    found = node.get("type", ())
    return [found] if isinstance(found, str) else found if isinstance(found, list) else []


def test_numbers_have_64_bits(exported):
    found = [(path, node) for path, node in nodes(exported) if "/example" not in path]
    integers = [(path, node) for path, node in found if "integer" in kinds(node) or isinstance(node.get("const"), int)]
    assert len(integers) > 40
    assert [path for path, node in integers if "type" not in node or node.get("format") != "int64"] == []
    assert [path for path, node in found if "number" in kinds(node) and node.get("format") != "double"] == []


def test_openapi_generator_gets_along_with_it(exported):
    found = [(path, node) for path, node in nodes(exported) if "/example" not in path]
    # Its normalizer fails at a header that is a reference.
    headers = [node for _, node in found if "headers" in node and "description" in node]
    assert headers and [header for node in headers for header in node["headers"].values() if "$ref" in header] == []
    # Its parser takes no body of a link but a string.
    assert [path for path, node in found if "/links/" in path and "requestBody" in node] == []
    # Where an object does not say that it is open, its Go and Java clients refuse members that a later version adds.
    objects = [(path, node) for path, node in found if "object" in kinds(node) and "properties" in node]
    assert [path for path, node in objects if "additionalProperties" not in node] == []


FOREIGN = [
    {"job": "x", "meta": {"schema_version": 1, "lang": "cobol"}, "attempts": -1},
    {"urn": "x", "meta": {"schema_version": 1, "id": None, "created_at": None}, "attempts": 0, "other": 1},
]


@pytest.mark.parametrize("envelope", FOREIGN)
async def test_an_envelope_of_another_program_fits_the_schema(app, client, exported, queue, envelope):
    body = json.dumps({"trace_id": "t", "data": {}, **envelope}).encode()
    binding = app.gateway.bindings["local"]
    await binding.publish(binding.native_queue(queue, {}), [Outgoing(body)])
    answer = (await client.post(f"/queues/{queue}/messages:receive")).json()
    assert len(answer["messages"]) == 1
    schema = {"$ref": "#/components/schemas/Received", "components": exported["components"]}
    jsonschema.Draft202012Validator(schema).validate(answer)


def test_the_options_of_a_message_are_documented_beside_a_draft_and_in_an_entry(exported):
    schemas = exported["components"]["schemas"]
    for name, others in (("Draft", {"job", "data", "trace_id", "meta"}), ("Entry", {"envelope"})):
        assert set(schemas[name]["properties"]) == {*others, *OPTIONS}
        assert schemas[name]["additionalProperties"] is False


def test_links_lead_to_operations(exported):
    names = {operation["operationId"] for _, _, operation in operations(exported)}
    links = [
        link["operationId"]
        for _, _, operation in operations(exported)
        for answer in operation["responses"].values()
        for link in answer.get("links", {}).values()
    ]
    assert {"receive_messages", "ack_messages"} <= set(links) <= names


async def test_the_examples_work(client, exported):
    queue = "emails"  # The envelopes of the examples name it.
    tried = 0
    for path, method, operation in operations(exported):
        for kind, body in bodies_of(exported, operation.get("requestBody", {})):
            url = path.format(queue=queue, **NOTHING)
            if path.endswith(":stream"):
                # Its answer has no end. tests/http/test_streams.py has it.
                continue
            answer = await client.request(method, url, content=body, headers={"content-type": kind})
            # Tokens and ids in examples are nobody's. This gateway makes no tokens:
            # tests/http/test_tokens.py has their examples.
            nobodys = answer.status_code >= 300 and answer.json()["code"]
            assert nobodys in (False, "invalid_ack_token", "unknown_dead_letter", "tokens_disabled"), (
                path,
                answer.text,
            )
            tried += 1
    assert tried > 15


def bodies_of(document, request):
    """The media type and the bytes of each example of a request."""
    for kind, content in request.get("content", {}).items():
        name = content["schema"].get("$ref", "").rpartition("/")[2]
        schema = document["components"]["schemas"].get(name, content["schema"])
        yield from ((kind, json.dumps(example)) for example in schema["examples"])
    for other in request.get("x-also-accepts", ()):
        if "example" in other:
            yield other["mediaType"], other["example"]


async def test_answers_fit_their_schemas(client, exported, queue):
    """What the hot endpoints answer is encoded without a schema, so it is held against it here."""

    def fits(answer, path, method, status):
        schema = exported["paths"][path][method]["responses"][status]["content"]["application/json"]["schema"]
        jsonschema.Draft202012Validator({**schema, "components": exported["components"]}).validate(answer.json())
        assert str(answer.status_code) == status
        return answer.json()

    base = "/queues/{queue}/messages"
    url = base.format(queue=queue)
    draft = {"job": "a", "data": {}}
    fits(await client.post(url, json=draft), base, "post", "201")
    fits(await client.post(f"{url}:batch", json=[draft, {}]), f"{base}:batch", "post", "207")
    fits(await client.post(f"{url}:validate", json=draft), f"{base}:validate", "post", "200")
    fits(await client.get(f"{url}:peek"), f"{base}:peek", "get", "200")
    received = fits(await client.post(f"{url}:receive?max_messages=2"), f"{base}:receive", "post", "200")
    first, second = [message["ack_token"] for message in received["messages"]]
    fits(await client.post(f"{url}:ack", json={"ack_tokens": [first, "x"]}), f"{base}:ack", "post", "207")
    fits(await client.post(f"{url}:extend", json={"ack_tokens": [second]}), f"{base}:extend", "post", "200")
    fits(await client.post(f"{url}:reject", json={"ack_tokens": [second]}), f"{base}:reject", "post", "200")
    dead = "/queues/{queue}/dead-letters"
    fits(await client.get(dead.format(queue=queue)), dead, "get", "200")
    with pytest.raises(jsonschema.ValidationError):
        fits(await client.post(f"{url}:batch", json=[]), f"{base}:receive", "post", "200")
