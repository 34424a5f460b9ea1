"""The OpenAPI document says everything that a caller needs: examples, units, defaults, bounds, and each status.

A failure names the place in the document and the file in which to add what is missing.
"""

from __future__ import annotations

import re
from pathlib import Path

import jsonschema
import pytest

from babelgate import envelope
from babelgate.http.openapi.reader import PLACE
from babelgate.http.problems import MEANINGS
from tests.harness.operations import DOCUMENT

ROOT = Path(__file__).parents[2]
METHODS = ("get", "post", "put", "patch", "delete")
WHERE = f"in app/babelgate/http/schemas.py, views.py or letter_views.py, or in {PLACE}"


@pytest.fixture(scope="module")
def document():
    return DOCUMENT


def operations(document):
    for item in document["paths"].values():
        for method in METHODS:
            if method in item:
                yield item[method]


def resolved(document, node):
    """``node``, or what it refers to."""
    while "$ref" in node:
        target = document
        for part in node["$ref"].removeprefix("#/").split("/"):
            target = target[part]
        node = target
    return node


def contents(document, operation):
    """Place, content and schema of each body of an operation: of its request, and of each of its successes."""
    name = operation["operationId"]
    for kind, content in operation.get("requestBody", {}).get("content", {}).items():
        yield f"{name} request {kind}", content
    for status, answer in operation["responses"].items():
        if status < "300":
            for kind, content in answer.get("content", {}).items():
                yield f"{name} {status} {kind}", content


def examples(document, content):
    """The examples of a content: its own, or those of its schema."""
    found = [content["example"]] if "example" in content else []
    found += [resolved(document, each)["value"] for each in content.get("examples", {}).values()]
    return found or resolved(document, content["schema"]).get("examples", [])


def test_every_body_has_an_example_that_fits_its_schema(document):
    missing = []
    for operation in operations(document):
        for place, content in contents(document, operation):
            found = examples(document, content)
            missing += [] if found else [place]
            schema = {**content["schema"], "components": document["components"]}
            for example in found:
                jsonschema.Draft202012Validator(schema).validate(example)
    assert missing == [], f"add it to the operation in {PLACE}"


def test_every_problem_has_an_example_of_each_of_its_codes(document):
    problem = {"$ref": "#/components/schemas/Problem", "components": document["components"]}
    shown = set()
    for name, answer in document["components"]["responses"].items():
        for example in examples(document, answer["content"]["application/problem+json"]):
            jsonschema.Draft202012Validator(problem).validate(example)
            assert f"Problem{example['status']}" == name
            shown.add(example["code"])
    # 405 is the answer of a path to other methods, so no operation has it.
    assert codes() - shown == {"method_not_allowed"}, f"add an error for each of these codes to {PLACE}/problems.yaml"


def codes():
    """Every code: of each class of error, of the codec, of the pages, and of each literal in the source."""
    found = {cls.code for cls in MEANINGS if "code" in vars(cls) and not cls.__subclasses__()}
    found |= set(re.findall(r"``([a-z]+_[a-z_]+)``", envelope.__doc__ or "")) - {"dead_letter", "trace_id"}
    page = (ROOT / "docs" / "errors.md").read_text("utf-8")
    for row in re.findall(r"^\|(?: \d{3} \|)?((?: `[a-z_]+`,?)+) \|", page, re.M):
        found |= set(re.findall(r"[a-z_]+", row))
    for path in (ROOT / "app").rglob("*.py"):
        text = path.read_text("utf-8")
        found |= set(re.findall(r'\bProblem\([^"()]*(?:"[^"]*"|\w+), "([a-z_]+)"', text))
    assert {"lease_lost", "lone_surrogate", "delay_too_long", "idempotency_key_mismatch"} <= found
    return found


def test_every_answer_says_what_it_means_to_the_caller(document):
    general = {answer["description"] for answer in document["components"]["responses"].values()}
    for operation in operations(document):
        for status, answer in operation["responses"].items():
            place = f"{operation['operationId']} {status}"
            said = answer.get("description", "")
            assert said.endswith(".") and len(said.split()) > 2, (
                f"{place}: say it at the operation, or in statuses.yaml, in {PLACE}: {said!r}"
            )
            assert said not in general, f"{place}: the title of the problem says nothing about this operation"


def test_a_conflict_means_something_else_to_each_kind_of_operation(document):
    said = {each["operationId"]: each["responses"].get("409", {}).get("description") for each in operations(document)}
    assert "idempotency key" in said["publish_message"] and "lease is over" in said["ack_messages"]


def members(document):
    """Place and schema of everything that has a name: parameters, headers, and the properties of schemas."""
    answers = [*document["components"].get("responses", {}).items()]
    for item in document["paths"].values():
        for each in item.get("parameters", ()):
            yield f"path {each['name']}", each["name"], each
    for operation in operations(document):
        for each in operation.get("parameters", ()):
            yield f"{operation['operationId']} {each['in']} {each['name']}", each["name"], each | each["schema"] | each
        answers += [(f"{operation['operationId']} {status}", each) for status, each in operation["responses"].items()]
    for place, answer in answers:
        for name, header in answer.get("headers", {}).items():
            yield f"{place} header {name}", name, header
    for name, schema in document["components"]["schemas"].items():
        for member, kind in schema.get("properties", {}).items():
            yield f"{name}.{member}", member, kind


def described(document, kind):
    """The description of a member: its own, or that of the schema that it names."""
    cases = [kind, *kind.get("anyOf", ())]
    return next(
        (case["description"] for case in map(lambda c: resolved(document, c) | c, cases) if "description" in case), ""
    )


def test_everything_that_has_a_name_has_a_description(document):
    silent = [place for place, _, kind in members(document) if not described(document, kind).endswith((".", "…"))]
    assert silent == [], f"describe it in a sentence {WHERE}"
    for name, schema in document["components"]["schemas"].items():
        assert schema.get("description", "").endswith("."), f"{name}: the docstring of its class is the description"


def requested(document):
    """The names of the schemas that clients send."""
    names: set[str] = set()
    pending = [operation.get("requestBody", {}) for operation in operations(document)]
    while pending:
        for name in set(re.findall(r"#/components/schemas/(\w+)", str(pending.pop()))) - names:
            names.add(name)
            pending.append(document["components"]["schemas"][name])
    return names


def test_seconds_name_their_unit_default_and_bounds(document):
    sent = requested(document)
    found = [each for each in members(document) if each[1].endswith("_seconds")]
    assert len(found) > 10
    for place, _, kind in found:
        said = described(document, kind)
        assert re.search(r"\b[Ss]econds\b", said), f"{place}: name the unit {WHERE}: {said!r}"
        if " query " in place or place.partition(".")[0] in sent:
            assert re.search(r"\b[Dd]efault\b|\b[Ww]ithout it\b", said), f"{place}: name the default {WHERE}: {said!r}"
            assert re.search(r"\bat most\b|\d to \d", said), f"{place}: name the bounds {WHERE}: {said!r}"
            cases = [kind, *kind.get("anyOf", ())]
            bounded = any("maximum" in case for case in cases) or "max_delay_seconds" in said
            assert bounded and any({"minimum", "exclusiveMinimum"} & case.keys() for case in cases), (
                f"{place}: bound it"
            )


def test_times_name_their_unit(document):
    found = [each for each in members(document) if each[1].endswith("_at")]
    for place, _, kind in found:
        text = described(document, kind)
        assert "Unix milliseconds UTC" in text or kind.get("format") == "date-time", f"{place}: {text!r}"


def test_the_walk_finds_what_is_missing(document):
    """Each of the checks above fails for a document that lacks what it asks for."""
    poor = {"paths": {}, "components": {"schemas": {"A": {"properties": {"x_seconds": {"type": "number"}}}}}}
    assert [place for place, _, kind in members(poor) if not described(poor, kind)] == ["A.x_seconds"]
