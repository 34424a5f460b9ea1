"""A walk over every operation with every kind of identity, each right, and an own and a foreign queue, on both ways."""

from __future__ import annotations

import hashlib
import itertools
import json
import ssl
from collections.abc import Iterator
from typing import Any, NamedTuple

import httpx
import pytest
import yaml

from babelgate.config import settings
from babelgate.gateway.authorization import OPERATORS, READERS, Right
from babelgate.http.api import OPEN
from babelgate.server.server import uvicorn_config
from tests.harness.authority import SERVER, Authority, client_context, dns
from tests.harness.issuer import AUDIENCE, running
from tests.harness.operations import NOTHING
from tests.harness.problems import problem
from tests.harness.sockets import Connection, serving
from tests.harness.ways import Served
from tests.http.test_access import ANYWHERE, CONFIGURATION, DRAFT, HISTORY, ROUTES, SCHEMAS, TOKENS_PATHS
from tests.http.test_certificates import LOCAL

LIMIT_SECONDS = 120
OWN, FOREIGN = "mine.a", "theirs"
NONE = "none"
HELD = [*(right.value for right in Right), NONE]
EVERYTHING = {"*": [right.value for right in Right]}
SHOP = "https://shop.example"
PAGE_OPERATIONS = {("POST", "/queues/{queue}/messages"), ("POST", "/queues/{queue}/messages:batch")}
"""What the token of a page may ask for."""
LISTS = {("GET", "/queues"), ("GET", "/rates")}
"""For every identity; each shows the queues on which it has a right."""

DIRECT_RIGHTS = {Right.SEND, Right.LISTEN}
"""Those of a publish and a receive, which a server of the direct way serves directly."""

Key = tuple[str, str]
"""A method and a path of the document."""


class Row(NamedTuple):
    """Who may ask for an operation: holders of one of ``rights``, or anyone (None). ``on_queue``: on the queue that is
    asked; otherwise on some queue."""

    rights: frozenset[Right] | None
    on_queue: bool = False
    body: Any = None


def rows() -> dict[Key, Row]:
    """One row for each operation."""
    every = frozenset(Right)
    found = {key: Row(None) for key in LISTS} | {("GET", path): Row(None) for path in OPEN}
    found |= dict.fromkeys(ANYWHERE, Row(frozenset(OPERATORS)))
    found |= dict.fromkeys(HISTORY, Row(frozenset(READERS)))
    found |= dict.fromkeys(SCHEMAS, Row(every))
    # No identity of this walk may manage everything.
    found |= dict.fromkeys(CONFIGURATION, Row(frozenset()))
    found |= dict.fromkeys(TOKENS_PATHS, Row(frozenset({Right.MANAGE})))
    found["POST", "/tokens"] = Row(frozenset({Right.MANAGE}), on_queue=True)
    for method, path, body, right in ROUTES:
        rights = every if right is None else frozenset({right})
        # Who may consume may also look.
        found[method, path] = Row(rights | ({Right.LISTEN} if right is Right.OBSERVE else set()), True, body)
    return found


ROWS = rows()


class Identity(NamedTuple):
    """What shows a credential. ``right``: the only one that it has, on its own queues. ``refused``: the status of
    each refusal of one that may do nothing. ``is_page``: whether it is the token of a page."""

    name: str
    right: Right | None
    headers: dict[str, str]
    context: ssl.SSLContext
    refused: int | None = None
    is_page: bool = False

    def expected(self, key: Key, queue: str) -> int:
        """The status of a refusal of an operation on ``queue``; 200: it is allowed."""
        row = ROWS[key]
        if key[1] in OPEN:
            return 200
        if self.refused is not None:
            return self.refused
        if self.is_page and (key not in PAGE_OPERATIONS or "origin" not in self.headers):
            return 403
        if row.rights is None:
            return 200
        return 200 if self.right in row.rights and (queue == OWN or not row.on_queue) else 403


class Client:
    """One connection, on which each request is one write: only then it is served directly in any case."""

    def __init__(self, address: tuple[str, int], identity: Identity) -> None:
        self._address = address
        self._context = identity.context
        headers = {"host": "localhost", "content-type": "application/json"} | identity.headers
        self._head = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        self._connection = self._connect()

    def _connect(self) -> Connection:
        return Connection(*self._address, LIMIT_SECONDS, self._context)

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *failure: object) -> None:
        self._connection.__exit__(*failure)

    def request(self, method: str, path: str, body: Any = None) -> httpx.Response:
        data = b"" if body is None else json.dumps(body).encode()
        head = f"{method} {path} HTTP/1.1\r\n{self._head}content-length: {len(data)}\r\n\r\n"
        self._connection.send(head.encode() + data)
        reply = self._connection.reply()
        if reply.headers.get("connection") == "close":
            self.__exit__()
            self._connection = self._connect()
        return httpx.Response(reply.status, headers=reply.headers, content=reply.body)


class Site:
    """A server of one way that knows identities of all kinds. ``boss``: one that may do everything; ``foreign_token``:
    the id of a made token with a right on the foreign queue."""

    boss: Client
    foreign_token: str

    def __init__(self, directory, direct, issuer):
        self.issuer = issuer
        self.authority = Authority("root")
        self.directory = directory
        self.authority.issue(directory / "server.pem", LOCAL, usage=SERVER)
        (directory / "ca.pem").write_bytes(self.authority.pem)
        held = {right: {} if right == NONE else {"mine.*": [right]} for right in HELD}
        tokens: list[dict[str, Any]] = [{"name": f"static-{right}", "rights": rights} for right, rights in held.items()]
        page = {"origins": [SHOP], "per_minute": 1_000_000}
        tokens += [
            {"name": "page", "rights": {"mine.*": ["send"]}, "page": page},
            {"name": "boss", "rights": EVERYTHING},
        ]
        grants = [{"claim": "roles", "value": right, "grant": rights} for right, rights in held.items() if rights]
        signer = {"issuer": issuer.url, "audience": AUDIENCE, "name_prefix": "sso:", "rights": grants}
        auth = {
            "tokens": [each | {"sha256": hashlib.sha256(each["name"].encode()).hexdigest()} for each in tokens],
            "issuers": [signer],
            "certificates": [
                {"san": f"DNS:{right}.example", "name": f"certificate-{right}", "rights": rights}
                for right, rights in held.items()
            ],
        }
        config = {
            "state_dir": str(directory),
            "brokers": {"local": {"url": f"sqlite:///{directory}/babelgate.db", "timeout_seconds": 30}},
            "tls_cert": str(directory / "server.pem"),
            "tls_key": str(directory / "server.pem"),
            "tls_client_ca": str(directory / "ca.pem"),
            "cors": {"origins": [SHOP]},
            "auth": auth,
        }
        path = directory / "babelgate.yaml"
        path.write_text(yaml.safe_dump(config))
        self.settings = settings.load(path, {})
        self.served = Served(self.settings, direct=direct)
        self.plain = client_context(self.authority)

    def make(self, name: str, rights: dict[str, list[str]]) -> dict[str, Any]:
        """A made token with its secret."""
        answer = self.boss.request("POST", "/tokens", {"name": name, "rights": rights, "ttl_seconds": 3_600})
        assert answer.status_code == 201, answer.text
        made: dict[str, Any] = answer.json()
        return made

    def foreign_counts(self) -> dict[str, int | None]:
        """How many messages the foreign queue has, by their states."""
        counts: dict[str, int | None] = self.boss.request("GET", f"/queues/{FOREIGN}").json()["stats"]
        del counts["oldest_age_seconds"]
        return counts

    def identities(self, kind: str) -> Iterator[Identity]:
        """One of this kind for each right."""
        if kind == "page":
            yield Identity("page", Right.SEND, bearer("page") | {"origin": SHOP}, self.plain, is_page=True)
            yield Identity("page elsewhere", Right.SEND, bearer("page"), self.plain, is_page=True)
            return
        if kind == "nobody":
            yield Identity("no credential", None, {}, self.plain, refused=401)
            yield Identity("unknown token", None, bearer("unknown"), self.plain, refused=401)
            yield Identity("certificate of nobody", None, {}, self.show("nobody"), refused=403)
            # A token decides alone.
            known = self.show("send")
            yield Identity("unknown token, known certificate", None, bearer("unknown"), known, refused=401)
            return
        for held in HELD:
            right = None if held == NONE else Right(held)
            headers, context = {}, self.plain
            if kind == "static":
                headers = bearer(f"static-{held}")
            elif kind == "signed":
                headers = bearer(self.issuer.token(sub=held, roles=[held]))
            elif kind == "certificate":
                context = self.show(held)
            elif right is None:
                # Each made token has a right: the API refuses to make another.
                continue
            else:
                headers = bearer(self.make(f"made-{held}", {"mine.*": [held]})["secret"])
            yield Identity(f"{kind} {held}", right, headers, context)

    def show(self, name: str) -> ssl.SSLContext:
        """What shows a certificate with this name."""
        file = self.directory / f"{name}.pem"
        self.authority.issue(file, [dns(f"{name}.example")])
        return client_context(self.authority, file)


def bearer(token: str) -> dict[str, str]:
    return {"authorization": f"Bearer {token}"}


@pytest.fixture(scope="module")
def issuer():
    with running() as found:
        yield found


@pytest.fixture(scope="module", params=["direct", "application"])
def site(request, issuer, tmp_path_factory):
    made = Site(tmp_path_factory.mktemp("site"), request.param == "direct", issuer)
    with serving(uvicorn_config(made.served.build, made.settings)) as address:
        made.served.address = address
        with Client(address, Identity("boss", None, bearer("boss"), made.plain)) as made.boss:
            made.foreign_token = made.make("foreign", {FOREIGN: ["send"]})["token"]["id"]
            yield made


def check(answer: httpx.Response, expected: int) -> None:
    """Raises AssertionError."""
    if expected == 200:
        # An allowed operation may find nothing, or refuse what the table sends. It is served in any case.
        assert answer.status_code not in (401, 403, 405), answer.text
        assert answer.status_code < 500, answer.text
        assert answer.status_code != 404 or answer.json()["code"] != "not_found", answer.text
    elif expected == 401:
        problem(answer, 401, "unauthenticated")
        assert answer.headers["www-authenticate"].startswith("Bearer")
    else:
        problem(answer, 403, "forbidden")


serial = itertools.count()


def body_of(key: Key, identity: Identity, queue: str) -> Any:
    if key != ("POST", "/tokens"):
        return ROWS[key].body
    rights = {queue: [(identity.right or Right.MANAGE).value]}
    return {"name": f"walk-{next(serial)}", "rights": rights, "ttl_seconds": 3_600}


def walk(client: Client, identity: Identity, operations: list[Key], ids: dict[str, str]) -> Iterator[str]:
    """Every mistake in the answers that ``identity`` gets. ``ids``: for the parameters of paths."""
    for key in operations:
        method, path = key
        # The hot endpoints remember whom they have admitted.
        repeated = 2 if path.startswith("/queues/{queue}/messages") else 1
        for queue in (OWN, FOREIGN) if ROWS[key].on_queue else (OWN,):
            url = path.format(queue=queue, **ids)
            expected = identity.expected(key, queue)
            for _ in range(repeated):
                answer = client.request(method, url, body_of(key, identity, queue))
                try:
                    check(answer, expected)
                except AssertionError as error:
                    yield f"{identity.name}: {method} {url} is not {expected}: {error}"
            if key in LISTS and expected == answer.status_code == 200:
                shown = {each["queue"] for each in answer.json()["queues"]}
                if shown != ({OWN} if identity.right else set()):
                    yield f"{identity.name}: {method} {url} shows {shown}"


@pytest.mark.parametrize("kind", ["static", "made", "signed", "certificate", "page", "nobody"])
def test_each_operation_needs_its_right_on_its_queue(site, kind):
    document = site.boss.request("GET", "/openapi.json").json()
    operations = [
        (method.upper(), path) for path, item in document["paths"].items() for method in item if method != "parameters"
    ]
    assert set(operations) <= ROWS.keys(), "each operation has a row: see rows()"
    for queue in (OWN, FOREIGN):
        assert site.boss.request("POST", f"/queues/{queue}/messages", DRAFT).status_code == 201
    before = site.foreign_counts()
    ids = NOTHING | {"id": site.foreign_token}
    mistakes: list[str] = []
    direct: set[Right | None] = set()
    for identity in site.identities(kind):
        site.served.directly.clear()
        with Client(site.served.address, identity) as client:
            mistakes += walk(client, identity, operations, ids)
        if any(site.served.directly):
            direct.add(identity.right)
    assert mistakes == []
    # Pages are served by the application only.
    expects_direct = site.served.app.direct is not None and kind not in ("page", "nobody")
    assert bool(direct) == expects_direct and direct <= DIRECT_RIGHTS
    # What was refused has changed nothing.
    assert site.foreign_counts() == before
    tokens = site.boss.request("GET", "/tokens").json()["tokens"]
    assert site.foreign_token in {each["id"] for each in tokens}
