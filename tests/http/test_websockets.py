"""Streams over a WebSocket, by an independent client and by bare sockets."""

from __future__ import annotations

import base64
import json
import os
import select
import socket
import struct

import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import connect

from tests.harness.sockets import Connection
from tests.http.test_streams import MEMBERS, client, depth, eventually, publish, serve_streams, url

__all__ = ["client", "serve_streams", "url"]
LIMIT_SECONDS = 120
KEY = "dGhlIHNhbXBsZSBub25jZQ=="
ACCEPT = "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="
"""Of RFC 6455, section 1.3."""


@pytest.fixture
def opened(direct, url):
    """A function of a query and a token that opens a WebSocket."""
    host, port = direct.address

    def make(query="", token="all", subprotocols=("babelgate.v1",)):
        return connect(
            f"ws://{host}:{port}/mq/{url}/messages:stream{query}",
            subprotocols=subprotocols,
            additional_headers={"authorization": f"Bearer {token}"},
            open_timeout=LIMIT_SECONDS,
            compression=None,
        )

    return make


def close_code(closed):
    return closed.rcvd.code


def told(socket):
    return json.loads(socket.recv(LIMIT_SECONDS))


def counts(client, url):
    stats = client.get(url).json()["stats"]
    return stats["depth"], stats["in_flight"], stats["dead"]


def test_messages_are_settled_in_band(opened, client, url):
    publish(client, url, 4)
    with opened("?max_in_flight=2") as socket:
        assert socket.subprotocol == "babelgate.v1"
        first, second = told(socket), told(socket)
        assert [first["event"], list(first["data"])] == ["message", MEMBERS]
        token, other = first["data"]["ack_token"], second["data"]["ack_token"]
        socket.send(json.dumps({"id": "a", "extends": [{"ack_tokens": [other], "lease_seconds": 300}]}))
        extended = told(socket)
        assert (extended["event"], extended["id"], extended["data"]["settled"]) == ("settled", "a", 1)
        assert extended["data"]["results"][0]["lease_expires_at"] > second["data"]["lease_expires_at"]
        socket.send(json.dumps({"id": 7, "acks": [token, "x"], "rejects": [{"ack_tokens": [other]}]}))
        seen: dict[str, list] = {"settled": [], "message": []}
        while len(seen["settled"]) < 1 or len(seen["message"]) < 2:
            found = told(socket)
            seen[found["event"]].append(found)
        (settled,) = seen["settled"]
        assert (settled["id"], settled["data"]["settled"], settled["data"]["failed"]) == (7, 2, 1)
        assert settled["data"]["results"][1]["code"] == "invalid_ack_token"
        assert [each["data"]["envelope"]["data"]["n"] for each in seen["message"]] == [2, 3]
        socket.send(json.dumps({"acks": [each["data"]["ack_token"] for each in seen["message"]]}))
    # What was sent before the close counts.
    eventually(lambda: counts(client, url) == (0, 0, 1))


def test_the_window_is_changed_in_band(opened, client, url):
    with opened("?max_in_flight=1") as socket:
        socket.send('{"id": "stop", "max_in_flight": 0}')
        assert told(socket) == {"event": "window", "id": "stop", "data": {"max_in_flight": 0}}
        publish(client, url, 3)
        with pytest.raises(TimeoutError):
            socket.recv(0.5)
        socket.send('{"max_in_flight": 3}')
        assert [told(socket)["event"] for _ in range(4)] == ["window"] + ["message"] * 3
    eventually(lambda: depth(client, url) == 3)


def test_acks_of_one_message_are_answered_in_their_order(direct, client, url):
    """Among them some of a token that is none, of which the others know nothing."""
    count = 150
    publish(client, url, count)
    host, port = direct.address
    with Connection(host, port, LIMIT_SECONDS) as connection:
        connection.send(head(url).replace(b":stream ", b":stream?max_in_flight=150 "))
        assert connection.head()[0] == 101
        tokens = [event(connection)["data"]["ack_token"] for _ in range(count)]
        connection.send(b"".join(ack(number, token) for number, token in enumerate(tokens)))
        answers = [event(connection) for _ in range(count)]
        assert [answer["id"] for answer in answers] == list(range(count))
        done = {"settled": 1, "failed": 0, "results": [{"index": 0, "action": "ack", "status": 200}]}
        assert {(answer["event"], json.dumps(answer["data"])) for answer in answers} == {("settled", json.dumps(done))}
        connection.send(ack("twice", tokens[0]), ack("ü", tokens[1]), ack("none", "x" * 90))
        others = {answer["id"]: answer["data"] for answer in (event(connection) for _ in range(3))}
        assert (others["twice"], others["ü"]) == (done, done)
        assert (others["none"]["failed"], others["none"]["results"][0]["code"]) == (1, "invalid_ack_token")
    assert counts(client, url) == (0, 0, 0)


def test_an_ack_of_a_lease_that_has_ended_is_lost(opened, client, url):
    publish(client, url)
    with opened("?max_in_flight=1&lease_seconds=0.3&auto_extend=false") as socket:
        first, again = told(socket), told(socket)
        assert again["data"]["redelivered"] and first["data"]["envelope"] == again["data"]["envelope"]
        socket.send(json.dumps({"id": 1, "acks": [first["data"]["ack_token"]]}))
        while (found := told(socket))["event"] == "message":
            pass
        (result,) = found["data"]["results"]
        assert (found["id"], found["data"]["failed"], result["code"], result["status"]) == (1, 1, "lease_lost", 409)
        assert result["detail"]


def test_a_client_that_acks_and_reads_no_answer_is_not_read(direct, client, url):
    """Else its answers would fill the memory of the gateway. It gets all of them when it reads."""
    publish(client, url)
    with socket.socket() as plain:
        plain.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        plain.settimeout(LIMIT_SECONDS)
        plain.connect(direct.address)
        plain.sendall(head(url))
        with plain.makefile("rb") as answers:
            while answers.readline() != b"\r\n":
                pass
            command = ack("i" * 128, event(answers)["data"]["ack_token"])
            block, sent = command * 500, 0
            while select.select([], [plain], [], 3)[1]:
                assert sent < 100_000_000, "it is still read"
                sent += plain.send(block[sent % len(command) :])
            for _ in range(sent // len(command)):
                assert event(answers)["data"]["settled"] == 1


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("{", "invalid_json"),
        ("[]", "invalid_parameter"),
        ("{}", "invalid_parameter"),
        ('{"acks": [], "no_such": 1}', "invalid_parameter"),
        ('{"max_in_flight": 1001}', "invalid_parameter"),
        (json.dumps({"acks": ["x"] * 1001}), "invalid_parameter"),
    ],
)
def test_a_bad_command_is_a_problem_and_the_stream_goes_on(opened, client, url, text, code):
    with opened() as socket:
        socket.send(text)
        found = told(socket)
        assert (found["event"], found["data"]["code"]) == ("problem", code)
        publish(client, url)
        assert told(socket)["event"] == "message"


def test_pings_are_answered_and_fragments_are_joined(opened, client, url):
    with opened() as socket:
        assert socket.ping().wait(LIMIT_SECONDS)
        socket.send(iter(['{"id": 1, "max_in', '_flight"', ": 5}"]))
        assert told(socket)["data"] == {"max_in_flight": 5}


@pytest.mark.parametrize("size", [2_097_153, 5_000_000])
def test_a_frame_that_is_too_large_ends_the_stream(opened, size):
    with opened() as socket:
        with pytest.raises(ConnectionClosed) as closed:
            socket.send("x" * size)
            told(socket)
        assert closed.value.rcvd is None or closed.value.rcvd.code == 1009


def test_a_frame_of_bytes_ends_the_stream(opened):
    with opened() as socket:
        socket.send(b"x")
        with pytest.raises(ConnectionClosed) as closed:
            told(socket)
        assert close_code(closed.value) == 1003


def test_a_client_without_the_right_is_refused_before_the_switch(opened):
    for token, status in (("none", 401), ("read", 200)):
        if status == 200:
            with opened(token=token):
                continue
        with pytest.raises(InvalidStatus) as refused:
            opened(token=token)
        assert refused.value.response.status_code == status
        assert json.loads(refused.value.response.body)["code"] == "unauthenticated"
    for wrong in ("?max_in_flight=0", "?no_such=1"):
        with pytest.raises(InvalidStatus) as refused:
            opened(wrong)
        assert refused.value.response.status_code == 400


def head(url, **fields):
    given = {
        "Host": "localhost",
        "Authorization": "Bearer all",
        "Connection": "Upgrade",
        "Upgrade": "websocket",
        "Sec-WebSocket-Key": KEY,
        "Sec-WebSocket-Version": "13",
    } | {name.replace("_", "-"): value for name, value in fields.items()}
    lines = "".join(f"{name}: {value}\r\n" for name, value in given.items() if value is not None)
    return f"GET /mq/{url}/messages:stream HTTP/1.1\r\n{lines}\r\n".encode()


def masked(opcode, payload, fin=True):
    mask = os.urandom(4)
    length = len(payload)
    size = struct.pack("!B", 0x80 | length) if length < 126 else struct.pack("!BH", 0x80 | 126, length)
    body = bytes(each ^ mask[index % 4] for index, each in enumerate(payload))
    return bytes([(0x80 if fin else 0) | opcode]) + size + mask + body


def ack(number, token):
    """The frame of a command for one message."""
    return masked(1, json.dumps({"id": number, "acks": [token]}, ensure_ascii=False).encode())


def event(frames):
    """The next event of a server's frames."""
    opcode, length = frames.read(2)
    assert opcode == 0x81
    if length == 126:
        (length,) = struct.unpack("!H", frames.read(2))
    return json.loads(frames.read(length))


def test_a_bare_socket_switches_and_gets_unmasked_frames(direct, client, url):
    publish(client, url)
    host, port = direct.address
    with Connection(host, port, LIMIT_SECONDS) as connection:
        connection.send(head(url))
        status, fields = connection.head()
        assert (status, fields["sec-websocket-accept"]) == (101, ACCEPT)
        assert (fields["upgrade"], fields["connection"].lower()) == ("websocket", "upgrade")
        assert "sec-websocket-protocol" not in fields and "transfer-encoding" not in fields
        first, second = connection.read(2)
        assert (first, second) == (0x81, 126)
        (length,) = struct.unpack("!H", connection.read(2))
        message = json.loads(connection.read(length))
        connection.send(
            masked(1, json.dumps({"acks": [message["data"]["ack_token"]]}).encode()), masked(8, b"\x03\xe8")
        )
        answer = b""
        while not connection_closed(answer):
            part = connection.read(1)
            if not part:
                break
            answer += part
        assert b'"settled":1' in answer or depth(client, url) == 0
    assert depth(client, url) == 0


@pytest.mark.parametrize("count", [64, 2_000])
def test_many_commands_at_once_are_all_answered_and_the_next_one_too(direct, url, count):
    host, port = direct.address

    def command(number):
        return masked(1, b'{"id":%d,"max_in_flight":5}' % number)

    with Connection(host, port, LIMIT_SECONDS) as connection:
        connection.send(head(url))
        assert connection.head()[0] == 101

        def answered():
            opcode, length = connection.read(2)
            assert opcode == 0x81
            return json.loads(connection.read(length))["id"]

        connection.send(b"".join(map(command, range(count))))
        assert [answered() for _ in range(count)] == list(range(count))
        connection.send(command(count))
        assert answered() == count


def connection_closed(answer):
    return answer.endswith(b"\x88\x02\x03\xe8")


@pytest.mark.parametrize(
    ("fields", "detail"),
    [
        ({"Sec_WebSocket_Version": "8"}, "version"),
        ({"Sec_WebSocket_Version": None}, "version"),
        ({"Sec_WebSocket_Key": "x"}, "sec-websocket-key"),
        ({"Sec_WebSocket_Key": base64.b64encode(bytes(15)).decode()}, "sec-websocket-key"),
        ({"Sec_WebSocket_Protocol": "mqtt, amqp"}, "babelgate.v1"),
    ],
)
def test_a_bad_handshake_is_a_problem(direct, url, fields, detail):
    with Connection(*direct.address) as connection:
        connection.send(head(url, **fields))
        reply = connection.reply()
        found = json.loads(reply.body)
        assert (reply.status, found["code"]) == (400, "malformed_http")
        assert detail in found["detail"]


@pytest.mark.parametrize(
    "frame",
    [
        pytest.param(b"\x81\x01x", id="without a mask"),
        pytest.param(b"\xf1\x80\x00\x00\x00\x00", id="reserved bits"),
        pytest.param(b"\x83\x80\x00\x00\x00\x00", id="an unknown opcode"),
        pytest.param(b"\x80\x80\x00\x00\x00\x00", id="a continuation of nothing"),
        pytest.param(b"\x89\xfe\x00\x80\x00\x00\x00\x00" + bytes(128), id="a long ping"),
    ],
)
def test_a_malformed_frame_ends_the_connection(direct, client, url, frame):
    publish(client, url)
    host, port = direct.address
    with Connection(host, port, LIMIT_SECONDS) as connection:
        connection.send(head(url))
        assert connection.head()[0] == 101
        connection.send(frame)
        answer = b""
        while part := connection.read(1):
            answer += part
        assert b"\x88" in answer and b"\x03\xea" in answer, "1002: protocol error"
    eventually(lambda: depth(client, url) == 1)


def test_another_path_does_not_switch(direct, client, url):
    with Connection(*direct.address) as connection:
        connection.send(head(url).replace(b"messages:stream", b"messages:peek"))
        assert connection.reply().status == 200


def test_a_stop_is_told_and_closes(serve_streams):
    with serve_streams(30) as client:
        publish(client, "queues/q", 2)
        address = str(client.base_url).replace("http://", "ws://")
        with connect(f"{address}queues/q/messages:stream?max_in_flight=1", compression=None) as socket:
            message = told(socket)
            client.drain()
            assert told(socket) == {"event": "drain", "data": {}}
            socket.send(json.dumps({"acks": [message["data"]["ack_token"]]}))
            assert told(socket)["data"]["settled"] == 1
            with pytest.raises(ConnectionClosed) as closed:
                told(socket)
            assert close_code(closed.value) == 1001


def test_a_keep_alive_is_a_ping(serve_streams):
    with serve_streams(0.2) as client:
        host, port = client.base_url.host, client.base_url.port
        with Connection(host, port, LIMIT_SECONDS) as connection:
            connection.send(head("queues/q").replace(b"/mq/", b"/"))
            assert connection.head()[0] == 101
            assert connection.read(4) == b"\x89\x00" * 2
