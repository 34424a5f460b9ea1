"""Only the package of a broker knows the broker: elsewhere its name is the rare exception, with a reason."""

from __future__ import annotations

import re

from tests.architecture.sources import ROOT, tracked

BROKERS = re.compile(
    r"\b(rabbitmq|amqp|kafka|pulsar|artemis|activemq|service ?bus|sqs|elasticmq|redis)\b", re.IGNORECASE
)
"""SQLite is not among them: it is also the store of the journal's index, and the default of the configuration."""

_EXAMPLES = "examples of what bindings answer, as clients see it"
_LIMIT = "a limit cites the page of the vendor from which it comes"
_PROPERTIES = "the published schema of the properties of the one broker that has some; its binding checks them"
_LANDING = "how to write the URL of a topic for the journal, in the words that users read"

ALLOWED = {
    "config/sections.py": (_LANDING, 1),
    "envelope/contract.py": (_LIMIT, 2),
    "pipeline/cli/datasets.py": (_LANDING, 1),
    "pipeline/storage/inputs.py": (_LIMIT, 2),
    "http/openapi/parts/envelopes.yaml": (_PROPERTIES, 3),
    "http/openapi/parts/problems.yaml": (_EXAMPLES, 4),
}
"""The files below ``app/babelgate`` that name brokers: why, and how often."""


def outside() -> dict[str, str]:
    """The texts of the package without those of the bindings, by their paths below it."""
    package = ROOT / "app" / "babelgate"
    below = {str(path.relative_to(package)): path for path in tracked() if path.is_relative_to(package)}
    return {name: path.read_text("utf-8") for name, path in below.items() if not name.startswith("brokers/")}


def test_only_bindings_name_brokers() -> None:
    """Capabilities are data, and the table in docs/brokers.md is made of them: point there instead of listing names."""
    found = {name: len(BROKERS.findall(text)) for name, text in outside().items()}
    assert {name: count for name, count in found.items() if count} == {
        name: count for name, (_, count) in ALLOWED.items()
    }


PROPERTIES = re.compile(r"\b(TimeToLive|ReplyToSessionId|SessionId|PartitionKey|ScheduledEnqueueTimeUtc)\b")


def test_above_bindings_broker_properties_are_a_mapping() -> None:
    """Their names are in the document of the API alone."""
    assert {name for name, text in outside().items() if PROPERTIES.search(text)} == {
        f"http/openapi/parts/{name}.yaml" for name in ("envelopes", "problems", "publish")
    }
