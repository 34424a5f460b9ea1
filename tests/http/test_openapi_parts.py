"""The parts of the OpenAPI document are complete, have nothing that the document does not use, and agree with the code.

A mistake in a part is an error that names the part, or what it lacks.
"""

from __future__ import annotations

import json
import re
import shutil
from importlib import resources
from pathlib import Path

import msgspec
import pytest
import yaml

from babelgate.brokers.servicebus.properties import MAX_KEY, MAX_TIME_TO_LIVE
from babelgate.envelope.contract import FORBIDDEN, FORBIDDEN_META, INT64_MAX, LANGS, MAX_ID
from babelgate.envelope.options import MAX_ORDERING_KEY, OPTIONS
from babelgate.http.consume import ENVELOPE
from babelgate.http.openapi.document import document
from babelgate.http.openapi.reader import FILES, FOLDER, PLACE, parts
from babelgate.http.rest import create_rest
from babelgate.http.schemas import MAX_ENTRIES, MAX_TOKENS
from babelgate.ojs import MEDIA_TYPE
from tests.harness.operations import DOCUMENT, NOTHING

SECTIONS = {
    *("info", "tags", "security", "securitySchemes", "queue", "headers"),
    *("statuses", "paths", "schemas", "problems"),
}


@pytest.fixture
def folder(tmp_path):
    """A copy of the parts, to be changed."""
    with resources.as_file(FOLDER) as place:
        shutil.copytree(place, tmp_path / "parts")
    return tmp_path / "parts"


@pytest.fixture
def made(folder):
    """A function that makes the document of the parts in ``folder``."""
    hot = [path for path in DOCUMENT["paths"] if path.startswith("/queues/{queue}/messages")]
    return lambda: document(create_rest(None, hot), hot, folder=folder)


def change(folder: Path, name: str, old: str, new: str) -> None:
    """Replace ``old`` in a part, where it occurs first."""
    path = folder / f"{name}.yaml"
    text = path.read_text("utf-8")
    assert old in text
    path.write_text(text.replace(old, new, 1), "utf-8")


def test_every_part_is_read():
    with resources.as_file(FOLDER) as place:
        assert {path.stem for path in place.iterdir()} == set(FILES)
        assert (Path(__file__).parents[2] / PLACE).resolve() == place.resolve()


def test_every_section_and_every_operation_is_used():
    assert parts().keys() == SECTIONS
    assert list(parts()["paths"]) == list(DOCUMENT["paths"])
    assert {operation["kind"] for item in parts()["paths"].values() for operation in item.values()} | {"every"} == set(
        parts()["statuses"]
    )


def test_every_shared_entry_is_used():
    text = "".join((FOLDER / f"{name}.yaml").read_text("utf-8") for name in FILES)
    shared = set().union(*(yaml.safe_load((FOLDER / f"{name}.yaml").read_text()).get("shared", {}) for name in FILES))
    assert shared == set(re.findall(r"\$use: ([a-z_]+)", text))


@pytest.mark.parametrize("name", FILES)
def test_no_name_occurs_twice_in_a_mapping(name):
    """The loader would take the last one."""

    def walk(node):
        if isinstance(node, yaml.MappingNode):
            names = [key.value for key, _ in node.value]
            assert len(set(names)) == len(names), f"{name}.yaml line {node.start_mark.line + 1}: {names}"
            for _, value in node.value:
                walk(value)
        elif isinstance(node, yaml.SequenceNode):
            for each in node.value:
                walk(each)

    walk(yaml.compose((FOLDER / f"{name}.yaml").read_text("utf-8"), yaml.CSafeLoader))


def test_a_schema_that_a_class_has_gets_no_member_that_the_class_lacks():
    """The parts add words to these; a misspelt member would be one of its own."""
    said = parts()["schemas"]
    own = {name for name, schema in said.items() if "type" in schema}
    assert {"Problem", "Draft"} <= own and {"Receipt"} <= said.keys() - own
    for name in said.keys() - own:
        for member, schema in DOCUMENT["components"]["schemas"][name]["properties"].items():
            assert {"type", "$ref", "anyOf"} & schema.keys(), f"{name}.{member}"


@pytest.mark.parametrize(
    ("name", "old", "new", "error"),
    [
        ("queues", "  /brokers:", "  /brockers:", f"{PLACE}: describe /brokers."),
        ("publish", "messages:batch:", "messages:match:", f"{PLACE}: describe /queues/{{queue}}/messages:batch."),
        ("dead-letters", "    delete:", "    patch:", f"{PLACE}: describe delete of /queues/{{queue}}/dead-letters/"),
        ("redrives", "summary:", "sumary:", f"{PLACE}: get /queues/{{queue}}/redrives has sumary"),
        ("redrives", "        200:", "        299:", f"{PLACE}: 299 of list_redrives has an example and no content."),
        (
            "redrives",
            "404: The queue is unknown, or no job of this host has this id.",
            "418:",
            f"{PLACE}: say what 418 of get_redrive means to its caller.",
        ),
        ("redrives", "kind: read", "kind: reed", f"{PLACE}: list_redrives has the kind reed"),
        ("publish", "query: PublishParameters", "query: Parameters", f"{PLACE}: publish_message has the query Param"),
        ("redrives", "{$use: job}", "{$use: jobs}", f"{PLACE}: no part has jobs in its section shared."),
        ("redrives", "  job:", "  letter:", f"{PLACE}/redrives.yaml: another part has letter in its section shared"),
        ("problems", "{limit: 200}", "{}", f"Add the fact 'limit' of compression_ratio_too_high to {PLACE}/problems"),
        ("problems", "args: {}", "args: []", "The example of a refused body is accepted: "),
    ],
)
def test_a_mistake_in_a_part_is_an_error_that_names_it(folder, made, name, old, new, error):
    change(folder, name, old, new)
    with pytest.raises(ValueError, match=re.escape(error)):
        made()


async def test_the_document_has_what_is_served_and_no_more(client):
    """All paths, and all methods of each."""
    hint = (await client.get("/queues/q/nonsense")).json()["detail"]
    below = re.search(r"The paths below /queues/\{queue\} are (.*?)\. ", hint)
    assert below
    queue = "/queues/{queue}"
    given = [path.removeprefix(queue).removeprefix("/") for path in DOCUMENT["paths"] if path.startswith(queue)]
    assert sorted(below[1].split(", ")) == sorted(path for path in given if path)
    for path, item in DOCUMENT["paths"].items():
        answer = await client.request("PATCH", path.format(queue="q", **NOTHING))
        methods = {method.upper() for method in item if method != "parameters"}
        head = {"HEAD"} if "GET" in methods and not path.endswith((":receive", ":stream")) else set()
        assert answer.status_code == 405 and set(answer.headers["allow"].split(", ")) == methods | head, path


def test_the_words_have_the_bounds_and_names_of_the_code():
    schemas = parts()["schemas"]
    meta, envelope = schemas["EnvelopeMeta"]["properties"], schemas["Envelope"]["properties"]
    assert meta["lang"]["enum"] == schemas["DraftMeta"]["properties"]["lang"]["enum"] == list(LANGS)
    assert meta["id"]["maxLength"] == MAX_ID and f"1 to {MAX_ID} " in meta["id"]["description"]
    assert envelope["attempts"]["maximum"] == meta["created_at"]["maximum"] == INT64_MAX
    assert schemas["EnvelopeMeta"]["propertyNames"] == {"not": {"enum": list(FORBIDDEN_META)}}
    assert schemas["Envelope"]["propertyNames"] == {"not": {"enum": [*FORBIDDEN, "urn", "dead_letter", *OPTIONS]}}
    for name in ("Draft", "Entry"):
        assert schemas[name]["properties"]["ordering_key"]["maxLength"] == MAX_ORDERING_KEY
    properties = schemas["BrokerProperties"]["properties"]
    for name in ("PartitionKey", "SessionId", "ReplyToSessionId"):
        assert properties[name]["maxLength"] == MAX_KEY
    assert properties["TimeToLive"]["maximum"] == MAX_TIME_TO_LIVE
    batch = DOCUMENT["paths"]["/queues/{queue}/messages:batch"]["post"]
    assert batch["requestBody"]["content"]["application/json"]["schema"]["maxItems"] == MAX_ENTRIES
    assert f"at most {MAX_ENTRIES} entries" in batch["description"] and f"`{MEDIA_TYPE}`" in batch["description"]
    assert f"1 to {MAX_TOKENS} tokens" in DOCUMENT["paths"]["/queues/{queue}/messages:settle"]["post"]["description"]
    publish = DOCUMENT["paths"]["/queues/{queue}/messages"]["post"]["requestBody"]["content"]
    assert {ENVELOPE.decode(), MEDIA_TYPE} < publish.keys()
    assert (
        f"Accept: {ENVELOPE.decode()}`" in DOCUMENT["paths"]["/queues/{queue}/messages:receive"]["get"]["description"]
    )


def test_the_examples_agree_with_each_other():
    answer = DOCUMENT["paths"]["/queues/{queue}/messages:validate"]["post"]["responses"]["200"]
    shown = answer["content"]["application/json"]["example"]
    (write,) = shown["writes"]
    assert msgspec.json.decode(write["body"]) == shown["envelope"]
    assert shown["size_bytes"] == len(write["body"]) == len(json.dumps(shown["envelope"], separators=(",", ":")))
