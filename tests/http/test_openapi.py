"""The OpenAPI document is valid, current, and good to generate clients from."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import jsonschema
import pytest
import yaml
from openapi_spec_validator import validate

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def exported():
    """The document in the repository."""
    return yaml.safe_load((ROOT / "openapi" / "openapi.yaml").read_text("utf-8"))


def operations(document):
    for path, item in document["paths"].items():
        for method, operation in item.items():
            if method != "parameters":
                yield path, method, operation


async def test_the_export_is_what_is_served(client, exported):
    assert (await client.get("/openapi.json")).json() == exported, "run `make openapi`"


def test_the_command_writes_the_export():
    command = [sys.executable, "-m", "app.http.openapi"]
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
        expected = {"400", "431", "500"}
        if operation.get("security") != []:
            expected |= {"401", "403"}
        if method == "post":
            expected |= {"413", "415"}
        if "{queue}" in path:
            expected |= {"404", "422", "429", "502", "503", "504"}
        assert expected <= declared, path
        problems = {status for status in declared if status >= "400"}
        assert all(operation["responses"][status]["$ref"].endswith(status) for status in problems)


def test_links_lead_to_operations(exported):
    names = {operation["operationId"] for _, _, operation in operations(exported)}
    links = [
        link["operationId"]
        for _, _, operation in operations(exported)
        for answer in operation["responses"].values()
        for link in answer.get("links", {}).values()
    ]
    assert {"receive_messages", "ack_messages"} <= set(links) <= names


async def test_the_examples_work(client, exported, queue):
    for path, method, operation in operations(exported):
        for kind, content in operation.get("requestBody", {}).get("content", {}).items():
            examples = [each["value"] for each in content.get("examples", {}).values()]
            examples += [content["example"]] if "example" in content else []
            for example in examples:
                answer = await client.request(
                    method, path.format(queue=queue), content=json.dumps(example), headers={"content-type": kind}
                )
                # Tokens in examples are nobody's.
                assert answer.status_code < 300 or answer.json()["code"] == "invalid_ack_token", (path, answer.text)


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
