"""Examples of problems for the document: one for each code, made by the code that answers requests.

``parts/problems.yaml`` has the facts of the errors and the bodies that are refused.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

from babelgate.clock import Clock
from babelgate.cloudevents import structured_entry
from babelgate.envelope import Limits, read_publication
from babelgate.errors import BabelgateError, EnvelopeError, EnvelopeSyntaxError, Problem, UnsupportedByBroker
from babelgate.http.problems import MEANINGS, problem
from babelgate.ojs import as_entry

Json = dict[str, Any]

_AT = 1_790_000_000_000
_TOO_DEEP = '{"job": "a", "data": ' + '{"a":' * 300 + "1" + "}" * 301


def problem_examples(facts: Json) -> dict[str, tuple[int, Json]]:
    """Status and body of one problem for each code, by name. ``facts``: the section ``problems`` of the parts.

    Where a code is both retryable and final, the final one has a name of its own.
    """
    made: dict[str, tuple[int, Json]] = {}
    for error in _errors(facts):
        code = name = error.problem_code
        status, _, body = problem(error, instance="/queues/emails/messages")
        value = json.loads(body)
        if code in made:
            before = made[code][1]
            if (before["status"], before["retryable"]) == (status, value["retryable"]):
                continue
            name = f"{code}_final" if before["status"] == status else f"{code}_{status}"
        made[name] = (status, value)
    return made


def _errors(facts: Json) -> Iterator[BabelgateError]:
    """An error for each code that a client may see."""
    own = [cls for cls in MEANINGS if "code" in vars(cls) and not cls.__subclasses__()]
    for cls in sorted(own, key=lambda cls: (cls.code, not cls.retryable)):
        if cls is EnvelopeSyntaxError:
            yield EnvelopeSyntaxError([Problem("", cls.code, "The body is not JSON: it is truncated.")])
            continue
        try:
            yield cls(**facts["every"] | facts["errors"].get(cls.code, {}))
        except KeyError as error:
            raise ValueError(
                f"Add the fact {error} of {cls.code} to app/babelgate/http/openapi/parts/problems.yaml."
            ) from None
    for code, said in facts["unsupported"].items():
        yield UnsupportedByBroker(code, **said)
    for code, said in facts["sentences"].items():
        yield EnvelopeError([Problem(said["pointer"], code, said["detail"])])
    for body in (*facts["bodies"], _TOO_DEEP):
        yield _refusal(body if isinstance(body, str) else json.dumps(body))
    for job in facts["jobs"]:
        yield _refusal(json.dumps(job), as_entry)
    for event in facts["events"]:
        yield _refusal(json.dumps(event), structured_entry)


def _refusal(text: str, entry: Callable[[bytes, str, Clock], bytes] | None = None) -> EnvelopeError:
    """The error of a publish with the invalid body ``text``. Raises ValueError when it is valid."""
    body = text.encode()
    try:
        body = body if entry is None else entry(body, "emails", lambda: _AT)
        read_publication(body, "emails", Limits(), lambda: _AT)
    except EnvelopeError as error:
        return error
    raise ValueError(f"The example of a refused body is accepted: {text}")
