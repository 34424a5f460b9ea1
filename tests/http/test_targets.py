"""A path means the same on both ways to serve a request, and no escape makes a separator: a proxy in front compares
paths without decoding them."""

from __future__ import annotations

import re
from itertools import product

import pytest

from babelgate.errors import BabelgateError
from babelgate.http.heads import path_of, target_of
from tests.harness.asgi import Call
from tests.harness.haproxy import guarding
from tests.harness.sockets import Connection
from tests.harness.ways import DRAFT, answer, post

RECEIVE = b'{"wait_seconds":0}'
ACK = b'{"ack_tokens":["x"]}'
VERBS = {
    "/queues/direct-p.x_1/messages": ("POST", DRAFT, 201, None),
    "/queues/direct-r.x_1/messages:receive": ("POST", RECEIVE, 200, None),
    "/queues/direct-r.x_1/messages:ack": ("POST", ACK, 400, "invalid_ack_token"),
    "/queues/direct-r.x_1/messages:nack": ("POST", ACK, 400, "invalid_ack_token"),
    "/queues/direct-r.x_1/messages:validate": ("POST", DRAFT, 200, None),
    "/queues/direct-r.x_1/dead-letters:purge": ("POST", b"", 200, None),
    "/queues/direct-r.x_1:purge": ("POST", b"", 200, None),
    "/queues/direct-r.x_1/redrives/1:cancel": ("POST", b"", 404, "unknown_redrive"),
    "/queues/direct-r.x_1/dead-letters": ("GET", b"", 200, None),
    "/queues/direct-r.x_1": ("GET", b"", 200, None),
}
"""The method, the body, and the status and problem of each path: three that are served directly, and others."""
PREFIX = "/mq"
UNRESERVED = re.compile(r"[A-Za-z0-9._~-]")
SEPARATORS = "/\\:;?#@&=+,!$'()* \"<>|^`{}[]%"
OVERLONG = [
    "%C0%AF",
    "%c0%af",
    "%E0%80%AF",
    "%F0%80%80%AF",
    "%C0%BA",
    "%EF%BC%8F",
    "%u002F",
    "%00",
    "%0d%0a",
    "%FF",
    "é",
]
DOTS = [".", "..", "%2e", "%2E%2E", ".%2e", "%252e%252e", "..;", "%2e%2e%2f", "..%5C"]


def escapes(each: str) -> list[str]:
    """The escape of a character, in upper and lower case, and escaped twice."""
    upper = f"%{ord(each):02X}"
    return [upper, upper.lower(), upper.replace("%", "%25"), upper.replace("%", "%2525")]


def variants(path: str) -> list[str]:
    """``path`` with each of its characters escaped, with each separator and its escapes at each place where a segment
    or a verb could begin, and with segments of dots."""
    places = [at for at in range(1, len(path)) if not path[at].isalnum() or not path[at - 1].isalnum()]
    found = [path[:at] + text + path[at + 1 :] for at, each in enumerate(path) for text in escapes(each)]
    found += [path[:at] + each + path[at + 1 :] for at in places if path[at] in "/:" for each in SEPARATORS]
    texts = [text for each in SEPARATORS for text in (each, *escapes(each))] + OVERLONG
    found += [path[:at] + text + path[at:] for at, text in product([len("/queues/direct-"), len(path)], texts)]
    found += [path[:at] + "/" + text + path[at:] for at, text in product(places, DOTS) if path[at] == "/"]
    # Several at once, the whole name, and the whole path.
    found += [path.replace(each, text) for each in "/:-" for text in escapes(each)]
    found.append("".join(f"%{ord(each):02x}" if UNRESERVED.match(each) else each for each in path))
    return found


def decoded(path: str) -> str:
    """``path`` with the escapes of unreserved characters decoded, once: the equivalent of RFC 3986, section 6.2.2.2."""
    return re.sub(
        "%[0-9A-Fa-f]{2}",
        lambda found: each if UNRESERVED.match(each := chr(int(found[0][1:], 16))) else found[0],
        path,
    )


def shown(reply):
    """What must be equal: ids, times and counts need not be."""
    status, headers, body = reply
    return status, headers, *(body.get(name) for name in ("code", "detail", "queue", "instance"))


@pytest.mark.parametrize(
    ("path", "prefix"), [*((path, PREFIX) for path in VERBS), *((path, "") for path in list(VERBS)[:3])]
)
def test_both_ways_read_every_spelling_of_a_path_alike(direct, application, path, prefix):
    method, body, status, code = VERBS[path]
    served = {}
    for spelt in {prefix + path, *variants(prefix + path)}:
        request = post(spelt, body).replace(b"POST", method.encode(), 1)
        replies = [shown(answer(each, request)) for each in (direct, application)]
        assert replies[0] == replies[1], spelt
        served[spelt] = replies[0]
    usual = served[prefix + path]
    assert (usual[0], usual[2]) == (status, code)
    for spelt, reply in served.items():
        if decoded(spelt) == prefix + path:
            assert reply == usual, spelt
        elif "%" in decoded(spelt).partition("?")[0]:
            # An escape that stays is a part of a name, and no name has one.
            assert 400 <= reply[0] < 500, (spelt, reply)
        else:
            assert reply[0] < 500, (spelt, reply)


def test_no_other_queue_was_reached_by_any_of_them(direct, application):
    """Each spelling of a publish that was accepted named its queue in the answer; here, each queue is looked at."""
    assert answer(direct, post("/queues%2Fb.x/messages"))[0] == 404
    listed = answer(application, post("/queues", b"").replace(b"POST", b"GET", 1))[2]["queues"]
    names = {each["queue"] for each in listed}
    assert "b.x" not in names
    assert all(re.fullmatch(r"[A-Za-z0-9._-]+", name) for name in names)


class _Behind:
    """A server at the address of a proxy in front of it."""

    def __init__(self, address):
        self.address = address


@pytest.mark.parametrize("verb", ["messages", "messages:receive"])
def test_no_spelling_gets_past_a_path_rule_of_a_proxy(direct, application, tmp_path, verb):
    """Each spelling of the path is refused by HAProxy, or it is refused here: the message of another stays."""
    secret = "direct-secret-" + verb.replace(":", "-")
    path = f"/queues/{secret}/{verb}"
    stored = answer(application, post(f"/queues/{secret}/messages"))
    assert stored[0] == 201
    spellings = [*variants(path), *(f"/{PREFIX}/..{each}" for each in variants(path))]
    with guarding(tmp_path, direct.address, f"^(/mq)?/queues/{secret}(/|:|$)") as address:
        behind = _Behind(address)
        assert seen(behind, post(path)) == 410
        for spelt in spellings:
            status = seen(behind, post(spelt, DRAFT if verb == "messages" else b""))
            assert status >= 400 or secret not in decoded(spelt), (spelt, status)
    look = post(f"/queues/{secret}", b"").replace(b"POST", b"GET", 1)
    stats = answer(application, look)[2]["stats"]
    assert (stats["depth"], stats["in_flight"]) == (1, 0)


def seen(served, request):
    """The status, of an answer that may be a page of HAProxy."""
    with Connection(*served.address) as connection:
        connection.send(request)
        return connection.head()[0]


ILLEGAL = {
    "a fragment": "/queues/direct-q/messages#a",
    "an empty fragment": "/queues/direct-q/messages#",
    "a fragment behind a query": "/queues/direct-q/messages:receive?max_messages=1#a",
    "a fragment in a query's name": "/queues/direct-q/messages:receive?#max_messages=1",
    "a fragment in a URL": "http://localhost/queues/direct-q/messages#a",
    "a fragment behind a host": "http://localhost#a",
    "a fragment behind a URL's query": "http://localhost/queues?#a",
    "a quote": '/queues/direct-q/messages"',
    "a quote in a query": '/queues?a="',
    "a bracket": "/queues/<q>/messages",
    "a bracket in a query": "/queues?a=<b>",
    "a backslash": "/queues\\direct-q/messages",
    "a brace": "/queues/{queue}/messages",
    "a bar": "/queues/a|b/messages",
    "no escape": "/queues/direct-q%/messages",
    "half an escape": "/queues/direct-q/messages%2",
    "an escape that is none": "/queues/%zz/messages",
    "half an escape in a query": "/queues/direct-q/messages:receive?a=%2",
    "another scheme": "ftp://localhost/queues/direct-q/messages",
    "a host without a scheme": "localhost/queues",
    "a name and a host": "http://a@localhost/queues",
}


@pytest.mark.parametrize("name", ILLEGAL)
def test_what_no_target_may_have_is_refused_on_both_ways(direct, application, name):
    request = post(ILLEGAL[name], b"")
    replies = [answer(each, request) for each in (direct, application)]
    assert replies[0] == replies[1]
    status, headers, body = replies[0]
    assert (status, body["code"], headers["connection"]) == (400, "malformed_http", "close")


LEGAL = {
    "http://localhost/queues/direct-q/messages:receive?max_messages=1": 200,
    "HTTPS://LOCALHOST/queues/direct-q/messages:receive": 200,
    "/queues/direct-q/messages:receive?max_messages=%31": 200,
    # Not legal in a query by RFC 3986, but sent by browsers, and no separator.
    "/queues/direct-q/messages:receive?a=[]\\^`{|}": 400,
    "/queues/direct-q/messages:receive?a=/?:@!$&'()*+,;=-._~%20": 400,
}


@pytest.mark.parametrize("target", LEGAL)
def test_what_a_target_may_have_is_read(direct, application, target):
    request = post(target, b"")
    replies = [answer(each, request) for each in (direct, application)]
    assert replies[0] == replies[1]
    status, _, body = replies[0]
    assert (status, body.get("code")) == (LEGAL[target], "invalid_parameter" if LEGAL[target] == 400 else None)


def test_a_url_without_a_path_is_the_start_page(direct):
    with Connection(*direct.address) as connection:
        connection.send(b"GET http://localhost?a HTTP/1.1\r\nHost: localhost\r\n\r\n")
        reply = connection.reply()
    assert (reply.status, reply.headers["location"]) == (307, "docs")


@pytest.mark.parametrize(
    ("raw_path", "query", "status", "code"),
    [
        (b"/queues/a%2Fb", b"", 400, "invalid_parameter"),
        (b"/queues/%61", b"", 200, None),
        (b"/queues/a|b", b"", 400, "malformed_http"),
        (b"/queues/\xff", b"", 400, "malformed_http"),
        (b"/queues/a%", b"", 400, "malformed_http"),
        (b"/queues/a", b"#", 400, "malformed_http"),
    ],
)
async def test_another_asgi_server_leads_to_the_same_answers(app, raw_path, query, status, code):
    """It decodes the path, and may accept what a target cannot have."""
    call = Call("GET", "/queues/a/b")
    call.scope |= {"raw_path": raw_path, "query_string": query}
    await call.run(app)
    assert (call.status, call.json().get("code")) == (status, code)


@pytest.mark.parametrize("path", ["/a%2fb%3a%C3%a9", "/%25%32%46", "/%2541", "/a", "", "/%7e%41%2d"])
def test_a_normal_form_stays_as_it_is(path):
    once = path_of(path.encode())
    assert path_of(once.encode()) == once


def test_long_and_short_targets_are_parsed_alike():
    long = "/queues/" + "q" * 300
    for path in (long, long[:50]):
        found = target_of(f"{path}/messages%3Aack?a=%2F".encode())
        assert (found.queue, found.verb, found.query) == (path[8:], "messages%3Aack", b"a=%2F")
        with pytest.raises(BabelgateError, match="fragment"):
            target_of(f"{path}#".encode())
