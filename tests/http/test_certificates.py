"""Callers by their client certificates, on both ways over HTTP, and certificates that change while the server runs."""

from __future__ import annotations

import asyncio
import hashlib
import ipaddress
import json
import os
import shutil
import socket
import ssl
import time
from concurrent.futures import Future
from contextlib import suppress
from typing import Any

import httpx
import pytest
import yaml
from cryptography import x509
from websockets.sync.client import connect

from babelgate.config import settings
from babelgate.config.origin import Origin
from babelgate.errors import ConfigError
from babelgate.server import healthcheck
from babelgate.server.reload import Reload
from babelgate.server.server import uvicorn_config
from babelgate.server.tls import TlsFiles, load_tls
from tests.harness.authority import SERVER, Authority, client_context, dns, uri
from tests.harness.problems import problem
from tests.harness.sockets import serving
from tests.harness.ways import Served

LIMIT_SECONDS = 120
DRAFT = {"job": "count", "data": {"n": 1}}
LOCAL = [x509.IPAddress(ipaddress.ip_address("127.0.0.1")), x509.DNSName("localhost")]
ORDERS = "spiffe://shop.example/ns/shop/sa/orders"
RULES = [
    {"san": f"URI:{ORDERS}", "name": "orders", "rights": {"orders": ["send", "listen"]}},
    {"san": "URI:spiffe://shop.example/ns/*/sa/reader", "rights": {"*": ["listen"]}},
    {"san": "DNS:*.send.example", "name": "sender", "rights": {"*": ["send"]}, "limits": {"max_message_bytes": 512}},
    {"san": "email:Ann@shop.example", "name": "ann", "rights": {"*": ["send", "listen", "manage"]}},
]


class Site:
    """A server with two authorities of clients, and the certificates of its callers."""

    def __init__(self, directory, direct, **config):
        self.directory = directory
        self.root = Authority("root")
        self.issuing = Authority("issuing", self.root)
        self.other = Authority("other")
        self.root.issue(directory / "server.pem", LOCAL, usage=SERVER)
        self.write("ca.pem", self.root.pem + self.other.pem)
        path = self.path = directory / "babelgate.yaml"
        token = {"name": "token", "sha256": hashlib.sha256(b"secret").hexdigest(), "rights": {"*": ["manage"]}}
        given = {
            "state_dir": str(directory),
            "brokers": {"local": {"url": f"sqlite:///{directory}/babelgate.db", "timeout_seconds": 30}},
            "tls_cert": str(directory / "server.pem"),
            "tls_key": str(directory / "server.pem"),
            "tls_client_ca": str(directory / "ca.pem"),
            "auth": {"certificates": RULES, "tokens": [token]},
            "cors": {"origins": ["https://shop.example"]},
        }
        self.config = given | config
        path.write_text(yaml.safe_dump(self.config))
        self.settings = settings.load(path, {})
        self.served = Served(self.settings, direct=direct)

    def write(self, name, data):
        """Replace a file as a swap of a directory does: nobody sees a part of it."""
        made = self.directory / f"{name}.new"
        made.write_bytes(data)
        os.replace(made, self.directory / name)

    def client(self, names=None, authority=None, **issued):
        """A client whose certificate has these names; None: it has no certificate."""
        file = None
        if names is not None:
            file = self.directory / f"client-{time.monotonic_ns()}.pem"
            self.serial = (authority or self.issuing).issue(file, names, **issued)
        self.context = client_context(self.root, file)
        host, port = self.served.address
        return httpx.Client(base_url=f"https://{host}:{port}", verify=self.context, timeout=LIMIT_SECONDS)

    def connected(self):
        """A connection with the certificate of the last client."""
        address = self.served.address
        connection = socket.create_connection(address, LIMIT_SECONDS)
        return self.context.wrap_socket(connection, server_hostname=address[0])

    def call(self, coroutine):
        """The result of a coroutine in the loop of the server."""
        made: Future = asyncio.run_coroutine_threadsafe(coroutine, self.served.loop)
        return made.result(LIMIT_SECONDS)

    def reload(self):
        return self.call(self.served.app.tls.reload_certificates())


@pytest.fixture(scope="module", params=["direct", "application"])
def shared(request, tmp_path_factory):
    site = Site(tmp_path_factory.mktemp("site"), request.param == "direct")
    with serving(uvicorn_config(site.served.build, site.settings)) as site.served.address:
        yield site


@pytest.fixture(params=["direct", "application"])
def site(request, tmp_path):
    site = Site(tmp_path, request.param == "direct")
    with serving(uvicorn_config(site.served.build, site.settings)) as site.served.address:
        yield site


def publish(client, queue="orders", **options):
    return client.post(f"/queues/{queue}/messages", json=DRAFT, **options)


class TestNames:
    @pytest.mark.parametrize(
        ("names", "sends", "listens"),
        [
            ([uri(ORDERS)], 201, 200),
            ([dns("other.example"), uri("https://x.example"), uri(ORDERS)], 201, 200),
            ([uri("spiffe://shop.example/ns/any/sa/reader")], 403, 200),
            ([dns("A.SEND.example")], 201, 403),
            ([x509.RFC822Name("Ann@SHOP.example")], 201, 200),
        ],
        ids=["URI", "the third name", "any namespace", "any label, case", "mail, case of the host"],
    )
    def test_a_name_gives_its_rights(self, shared, names, sends, listens):
        with shared.client(names) as client:
            assert publish(client).status_code == sends
            assert client.post("/queues/orders/messages:receive").status_code == listens

    def test_on_its_queues_only(self, shared):
        with shared.client([uri(ORDERS)]) as client:
            assert publish(client).status_code == 201
            assert "'send' on the queue 'other'" in problem(publish(client, "other"), 403, "forbidden")["detail"]

    def test_served_directly(self, shared):
        with shared.client([uri(ORDERS)]) as client:
            shared.served.directly.clear()
            received = [publish(client), client.post("/queues/orders/messages:receive")]
            assert [each.status_code for each in received] == [201, 200]
            if shared.served.app.direct is not None:
                # httpx sends a body after its head, in a packet of its own.
                assert shared.served.directly[-1]

    def test_limits_of_an_entry(self, shared):
        with shared.client([dns("a.send.example")]) as client:
            answer = client.post("/queues/q/messages", json={"job": "j", "data": {"t": "x" * 600}})
            assert problem(answer, 413, "body_too_large")["limit"] == 512

    def test_one_look_for_all_connections(self, shared):
        own = "one-look.send.example"
        with shared.client([dns(own)]) as client, httpx.Client(base_url=client.base_url, verify=shared.context) as b:
            assert publish(client).status_code == publish(b).status_code == 201
            known = list(shared.served.app.tls._certificates._known.values())
            assert [each.names for each in known].count((f"DNS:{own}",)) == 1

    @pytest.mark.parametrize(
        ("names", "issued"),
        [
            ([], {"subject": "orders"}),
            ([], {"subject": ORDERS}),
            ([dns("*.send.example")], {}),
            ([dns("a.b.send.example")], {}),
            ([dns("send.example")], {}),
            ([dns(".send.example")], {}),
            ([dns("x.send.example\0.evil.example")], {}),
            ([dns("evil.example\0.send.example")], {}),
            ([dns("a\n.send.example")], {}),
            ([uri(ORDERS + "\0")], {}),
            ([uri(ORDERS + "/more")], {}),
            ([uri(ORDERS.upper())], {}),
            ([uri("spiffe://shop.example/ns/a/b/sa/reader")], {}),
            ([uri("spiffe://shop.example/ns/*/sa/reader")], {}),
            ([uri("spiffe://shop.example/ns//sa/reader")], {}),
            ([dns(ORDERS)], {}),
            ([uri("a.send.example")], {}),
            ([x509.RFC822Name("ann@shop.example")], {}),
            ([*(dns(f"h{index}.example") for index in range(200)), uri(ORDERS)], {}),
            ([uri("spiffe://shop.example/ns/" + "x" * 400 + "/sa/reader")], {}),
            ([x509.DirectoryName(x509.Name([]))], {}),
        ],
    )
    def test_a_certificate_of_nobody(self, shared, names, issued):
        with shared.client(names, **issued) as client:
            assert "auth.certificates" in problem(publish(client), 403, "forbidden")["detail"]
            assert client.get("/queues").status_code == 403
            assert client.get("/livez").status_code == 200

    @pytest.mark.parametrize("names", [b"\x30\x05\x86\x03\xff\xfe\x41", "many"], ids=["no text", "too many names"])
    def test_a_certificate_that_cannot_be_read(self, shared, names):
        given = [dns(f"host-{index}.example") for index in range(10_000)] if names == "many" else names
        with shared.client(given) as client, pytest.raises(httpx.TransportError):
            publish(client)
        with shared.client([uri(ORDERS)]) as client:
            assert publish(client).status_code == 201


class TestAuthorities:
    @pytest.mark.parametrize("what", ["other authority", "expired", "not yet valid", "of a server", "forged"])
    def test_no_connection_with_it(self, shared, what):
        days = {"expired": (-2, -1), "not yet valid": (1, 2)}.get(what, (-1, 1))
        stranger = Authority("issuing" if what == "forged" else "stranger")
        authority = stranger if what in ("other authority", "forged") else None
        usage = {"usage": SERVER} if what == "of a server" else {}
        with (
            shared.client([uri(ORDERS)], authority, days=days, **usage) as client,
            pytest.raises(httpx.TransportError),
        ):
            publish(client)

    def test_nobody_signs_below_a_certificate_of_a_client(self, shared):
        leaf = Authority.__new__(Authority)
        file = shared.directory / "leaf.pem"
        shared.issuing.issue(file, [uri(ORDERS)], subject="leaf")
        text = file.read_bytes()
        first = x509.load_pem_x509_certificates(text)[0]
        from cryptography.hazmat.primitives.serialization import load_pem_private_key

        leaf.key = load_pem_private_key(text[text.index(b"-----BEGIN PRIVATE") :], None)  # type: ignore[assignment]
        leaf.name, leaf.above, leaf.certificate = first.subject, shared.issuing, first
        with shared.client([uri(ORDERS)], leaf) as client, pytest.raises(httpx.TransportError):
            publish(client)

    def test_without_one(self, shared):
        with shared.client() as client:
            problem(publish(client), 401, "unauthenticated")
            headers = {"authorization": "Bearer secret"}
            assert client.get("/queues", headers=headers).status_code == 200

    def test_a_token_decides_alone(self, shared):
        with shared.client([uri(ORDERS)]) as client:
            problem(publish(client, headers={"authorization": "Bearer wrong"}), 401, "unauthenticated")
            problem(publish(client, headers={"authorization": "Basic b3JkZXJzOg=="}), 401, "unauthenticated")
            problem(publish(client, headers={"authorization": "Bearer secret"}), 403, "forbidden")
            assert publish(client).status_code == 201

    @pytest.mark.parametrize(
        "headers",
        [
            {"x-forwarded-client-cert": f"URI={ORDERS}"},
            {"x-client-cert": "-----BEGIN CERTIFICATE-----"},
            {"client-cert": ":MIIB:", "x-ssl-client-verify": "SUCCESS", "x-ssl-client-s-dn": "CN=orders"},
        ],
    )
    def test_what_a_proxy_says_of_one_counts_for_nothing(self, shared, headers):
        with shared.client() as client:
            problem(publish(client, headers=headers), 401, "unauthenticated")

    @pytest.mark.parametrize(
        "headers",
        [
            {"sec-fetch-site": "cross-site"},
            {"sec-fetch-site": "same-site"},
            {"origin": "https://evil.example"},
            # CORS allows it to call, with a token.
            {"origin": "https://shop.example"},
            {"origin": "null"},
        ],
    )
    def test_a_page_of_others_cannot_use_it(self, shared, headers):
        with shared.client([uri(ORDERS)]) as client:
            assert "Pages of other" in problem(publish(client, headers=headers), 403, "forbidden")["detail"]
            own = {"sec-fetch-site": "same-origin", "origin": str(client.base_url)}
            assert publish(client, headers=own).status_code == 201

    def test_no_session_is_resumed(self, shared):
        """It would bring a certificate that nobody verifies again."""
        with shared.client([uri(ORDERS)]) as client:
            assert publish(client).status_code == 201
        address = shared.served.address
        with shared.context.wrap_socket(socket.create_connection(address), server_hostname=address[0]) as first:
            first.sendall(b"GET /livez HTTP/1.1\r\nhost: localhost\r\n\r\n")
            assert first.recv(1)
            assert first.version() == "TLSv1.3"
            session = first.session
        assert session is None or not session.has_ticket

    def test_required(self, tmp_path):
        site = Site(tmp_path, True, tls_client_auth="required")
        with serving(uvicorn_config(site.served.build, site.settings)) as site.served.address:
            with site.client() as client, pytest.raises(httpx.TransportError):
                client.get("/livez")
            # The check of a container has no certificate, and the process serves.
            port = site.served.address[1]
            assert "alive" in healthcheck.ask(site.settings.model_copy(update={"port": port}), LIMIT_SECONDS)
            with site.client([uri(ORDERS)]) as client:
                assert publish(client).status_code == 201


def stream(client, path="/queues/orders/messages:stream"):
    return client.stream("GET", path, headers={"accept": "application/x-ndjson"})


class TestEndings:
    def test_its_time(self, site):
        statuses: list[int] = []
        seen = b""
        for seconds in (5, 20, 60):
            client = site.client([uri(ORDERS)], days=(-1, seconds / 86_400))
            ended = time.time() + seconds
            # On a busy machine it may end before it is connected.
            with client, suppress(httpx.TransportError, OSError):
                answer = client.get("/queues/orders")
                statuses.append(answer.status_code)
                # Each connection closes after an answer, so that the client shows the certificate that it has by then.
                assert answer.headers["connection"] == "close"
                with site.connected() as connection:
                    time.sleep(max(0.0, ended - time.time()))
                    connection.sendall(b"GET /queues/orders HTTP/1.1\r\nhost: localhost\r\n\r\n")
                    seen = b"".join(iter(lambda: connection.recv(65_536), b""))
                with pytest.raises(httpx.TransportError):
                    client.get("/queues/orders")
                if answer.status_code == 200 and seen:
                    break
        assert statuses[-1:] == [200]
        assert seen.startswith(b"HTTP/1.1 401 ")
        assert json.loads(seen.partition(b"\r\n\r\n")[2])["code"] == "unauthenticated"

    def test_a_stream_ends_with_it(self, site):
        lines: list[str] = []
        for seconds in (5, 20, 60):
            # On a busy machine it may end before it is connected.
            with (
                suppress(httpx.TransportError),
                site.client([uri(ORDERS)], days=(-1, seconds / 86_400)) as client,
                stream(client) as answer,
            ):
                lines = list(answer.iter_lines())
                if answer.status_code == 200:
                    break
        assert "unauthenticated" in "".join(lines)

    def test_its_authority_is_removed(self, site):
        with (
            site.client([uri(ORDERS)], site.other) as removed,
            site.client([uri(ORDERS)]) as kept,
            stream(kept) as open_stream,
        ):
            assert publish(removed).status_code == publish(kept, "orders").status_code == 201
            events = open_stream.iter_lines()
            with stream(removed, "/queues/orders/messages:stream?max_in_flight=1") as ended:
                site.write("ca.pem", site.root.pem)
                assert site.reload()
                assert "unauthenticated" in "".join(ended.iter_lines())
            problem(publish(removed), 401, "unauthenticated")
            with pytest.raises(httpx.TransportError):
                publish(removed)
            # The connection, and the stream, of another one go on.
            assert publish(kept).status_code == 201
            assert any('"message"' in line or "ack_token" in line for line in events)

    def test_its_connection_closes_after_one_answer(self, site):
        with site.client([uri(ORDERS)], site.other) as client:
            assert publish(client).status_code == 201
            site.write("ca.pem", site.root.pem)
            assert site.reload()
            answer = publish(client)
            problem(answer, 401, "unauthenticated")
            assert answer.headers["connection"] == "close"
            # Trusted again, it is the connection that has to be new.
            site.write("ca.pem", site.root.pem + site.other.pem)
            assert site.reload()
            assert publish(client).status_code == 201

    def test_it_is_revoked(self, tmp_path):
        site = Site(tmp_path, True, tls_client_crl=str(tmp_path / "crl.pem"))
        lists = site.root.crl() + site.other.crl()
        site.write("crl.pem", lists + site.issuing.crl())
        with (
            serving(uvicorn_config(site.served.build, site.settings)) as site.served.address,
            site.client([uri(ORDERS)]) as kept,
            site.client([uri(ORDERS)]) as client,
        ):
            assert publish(kept).status_code == publish(client).status_code == 201
            site.issuing.revoked.append(site.serial)
            site.write("crl.pem", lists + site.issuing.crl())
            assert site.reload()
            problem(publish(client), 401, "unauthenticated")
            with pytest.raises(httpx.TransportError):
                publish(client)
            assert publish(kept).status_code == 201

    def test_websocket(self, site):
        with site.client([uri(ORDERS)], site.other) as client:
            host, port = site.served.address
            assert publish(client).status_code == 201
            with connect(f"wss://{host}:{port}/queues/orders/messages:stream", ssl=site.context) as socket_:
                assert json.loads(socket_.recv(LIMIT_SECONDS))["event"]
                site.write("ca.pem", site.root.pem)
                assert site.reload()
                seen: list[dict[str, Any]] = []
                while not seen or seen[-1]["event"] != "problem":
                    seen.append(json.loads(socket_.recv(LIMIT_SECONDS)))
                assert seen[-1]["data"]["code"] == "unauthenticated"


class TestReload:
    def serial(self, site):
        """Of the certificate that a new connection gets."""
        context = client_context(site.root)
        address = site.served.address
        with context.wrap_socket(socket.create_connection(address), server_hostname=address[0]) as connection:
            shown = connection.getpeercert()
        assert shown is not None
        return int(str(shown["serialNumber"]), 16)

    def renew(self, site, names=LOCAL, **issued):
        file = site.directory / "server.pem.new"
        serial = site.root.issue(file, names, usage=SERVER, **issued)
        os.replace(file, site.directory / "server.pem")
        return serial

    def test_connections_stay_and_new_ones_get_the_new_one(self, site):
        with site.client([uri(ORDERS)]) as client, stream(client) as opened, site.client([uri(ORDERS)]) as other:
            assert publish(other).status_code == 201
            before = list(other._transport._pool.connections)
            serial = self.renew(site)
            assert site.reload()
            assert self.serial(site) == serial
            assert publish(other).status_code == 201
            assert other._transport._pool.connections == before
            assert any("ack_token" in line for line in opened.iter_lines())

    def test_the_files_are_watched(self, site):
        serial = self.renew(site)
        limit = time.monotonic() + LIMIT_SECONDS
        while self.serial(site) != serial and time.monotonic() < limit:
            time.sleep(0.2)
        assert self.serial(site) == serial

    @pytest.mark.parametrize("what", ["garbage", "another key", "gone", "no authority"])
    def test_what_cannot_be_used_changes_nothing(self, site, what, capfd):
        before = self.serial(site)
        name = "ca.pem" if what == "no authority" else "server.pem"
        if what == "gone":
            (site.directory / name).unlink()
        elif what == "another key":
            serial_file = site.directory / "x.pem"
            site.root.issue(serial_file, LOCAL, usage=SERVER)
            other = (site.directory / name).read_bytes()
            certificate = other[: other.index(b"-----BEGIN PRIVATE")]
            text = serial_file.read_bytes()
            site.write(name, certificate + text[text.index(b"-----BEGIN PRIVATE") :])
        else:
            site.write(name, b"garbage")
        assert not site.reload()
        assert self.serial(site) == before
        with site.client([uri(ORDERS)]) as client:
            assert publish(client).status_code == 201

    def test_a_swap_of_a_directory(self, tmp_path):
        """As Kubernetes changes the files of a Secret: ``..data`` leads to another directory."""
        site = Site(tmp_path, True)
        first, second = tmp_path / "..1", tmp_path / "..2"
        for each in (first, second):
            each.mkdir()
        shutil.move(tmp_path / "server.pem", first / "server.pem")
        (tmp_path / "..data").symlink_to("..1")
        (tmp_path / "server.pem").symlink_to("..data/server.pem")
        serial = site.root.issue(second / "server.pem", LOCAL, usage=SERVER)
        with serving(uvicorn_config(site.served.build, site.settings)) as site.served.address:
            (tmp_path / "..new").symlink_to("..2")
            os.replace(tmp_path / "..new", tmp_path / "..data")
            limit = time.monotonic() + LIMIT_SECONDS
            while self.serial(site) != serial and time.monotonic() < limit:
                time.sleep(0.2)
            assert self.serial(site) == serial

    def test_its_end_is_a_metric(self, site):
        name = "babelgate_tls_certificate_expires_timestamp_seconds "

        def shown():
            with site.client([x509.RFC822Name("Ann@shop.example")]) as client:
                lines = client.get("/metrics").text.splitlines()
            return next(float(line.partition(" ")[2]) for line in lines if line.startswith(name))

        before = shown()
        self.renew(site, days=(-1, 3))
        assert site.reload()
        limit = time.monotonic() + LIMIT_SECONDS
        # A reading of such gauges is kept for a second.
        while shown() == before and time.monotonic() < limit:
            time.sleep(0.1)
        assert shown() - before == pytest.approx(2 * 86_400, abs=3_600)


class TestNewRules:
    """The configuration is loaded again."""

    def load(self, site, certificates):
        auth = {**site.config["auth"], "certificates": certificates}
        site.path.write_text(yaml.safe_dump({**site.config, "auth": auth}))

        async def reload():
            return await Reload(site.served.app.live, site.settings, Origin(site.path, {})).reload("a test")

        site.call(reload())

    def test_they_hold_for_open_connections(self, site):
        reader = "spiffe://shop.example/ns/a/sa/reader"
        with site.client([uri(ORDERS)]) as orders, site.client([uri(reader)]) as other, stream(orders) as opened:
            problem(publish(other, "more"), 403, "forbidden")
            more = {"orders": ["send", "listen"], "more": ["send"]}
            self.load(site, [{"san": "URI:spiffe://shop.example/ns/*/sa/*", "name": "all", "rights": more}])
            assert publish(orders).status_code == publish(orders, "more").status_code == 201
            assert publish(other, "more").status_code == 201
            # The stream goes on: its caller has no right less.
            events = opened.iter_lines()
            assert any("ack_token" in line for line in events)
            self.load(site, [{"san": f"URI:{ORDERS}", "rights": {"orders": ["send"]}}])
            assert "problem" in "".join(events)
            assert publish(orders).status_code == 201
            problem(orders.post("/queues/orders/messages:receive"), 403, "forbidden")
            problem(publish(other, "more"), 403, "forbidden")


class TestFiles:
    @pytest.mark.parametrize("which", ["client_ca", "client_crl"])
    @pytest.mark.parametrize(
        "text", [b"", b"garbage", b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"]
    )
    def test_refused(self, tmp_path, which, text):
        authority = Authority("a")
        authority.issue(tmp_path / "server.pem", LOCAL, usage=SERVER)
        (tmp_path / "client_ca").write_bytes(authority.pem)
        (tmp_path / "client_crl").write_bytes(authority.crl())
        files = TlsFiles(*[tmp_path / name for name in ("server.pem", "server.pem", "client_ca", "client_crl")])
        assert isinstance(load_tls(files).context, ssl.SSLContext)
        (tmp_path / which).write_bytes(text)
        with pytest.raises(ConfigError, match=f"tls_{which}"):
            load_tls(files)

    @pytest.mark.parametrize(
        ("config", "key"),
        [
            ({"tls_client_ca": "x"}, "tls_client_ca: needs tls_cert"),
            ({"tls_client_auth": "required"}, "tls_client_auth: needs tls_client_ca"),
            ({"tls_client_crl": "x"}, "tls_client_crl: needs tls_client_ca"),
            ({"auth": {"certificates": RULES}}, "auth.certificates: needs tls_client_ca"),
            ({"san": "orders"}, "must begin with DNS:, URI: or email:"),
            ({"san": "IP:127.0.0.1"}, "must begin with DNS:, URI: or email:"),
            ({"san": "DNS:"}, "must begin with DNS:, URI: or email:"),
            ({"san": "DNS:a b"}, "visible ASCII"),
            ({"san": "email:*"}, "auth.certificates.0.san: must have one @"),
            ({"san": "email:ann"}, "auth.certificates.0.san: must have one @"),
            ({"san": "email:a@b@shop.example"}, "auth.certificates.0.san: must have one @"),
            ({"san": "DNS:é.example"}, "visible ASCII"),
        ],
    )
    def test_settings(self, tmp_path, config, key):
        if "san" in config:
            config = {"auth": {"certificates": [config | {"rights": {"*": ["send"]}}]}}
        path = tmp_path / "babelgate.yaml"
        path.write_text(yaml.safe_dump({"state_dir": str(tmp_path)} | config))
        with pytest.raises(ConfigError, match=key.replace(".", r"\.")):
            settings.load(path, {})

    def test_no_other_is_named_like_one(self, tmp_path):
        token = {"name": "URI:spiffe://shop.example", "sha256": "0" * 64, "rights": {"*": ["send"]}}
        path = tmp_path / "babelgate.yaml"
        path.write_text(yaml.safe_dump({"auth": {"tokens": [token]}}))
        with pytest.raises(ConfigError, match="cannot begin with URI:"):
            settings.load(path, {})
