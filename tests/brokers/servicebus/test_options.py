"""What may stand in a broker's URL and options, and in those of a route."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from urllib.parse import quote

import pytest

from babelgate.brokers.servicebus.binding import connect
from babelgate.brokers.servicebus.queue import ServiceBusQueue, queue_of
from babelgate.brokers.servicebus.url import ServiceBusSettings, settings_of
from babelgate.brokers.url import Tls
from babelgate.clock import now_ms
from babelgate.errors import ConfigError

HOST = "shop.servicebus.windows.net"
KEYED = f"Endpoint=sb://{HOST}/;SharedAccessKeyName=gateway;SharedAccessKey=c2VjcmV0"
EMULATOR = "Endpoint=sb://127.0.0.1:5672;SharedAccessKeyName=R;SharedAccessKey=K;UseDevelopmentEmulator=true;"


SETTINGS = ServiceBusSettings(
    host=HOST,
    connection_string=None,
    websocket=False,
    address=(HOST, 5671),
    endpoint_url=None,
    tls=Tls(),
    admin_url=None,
    max_handlers=100,
)


@pytest.mark.parametrize(
    ("url", "options", "expected"),
    [
        (f"servicebus://{HOST}", {}, SETTINGS),
        ("servicebus://", {"connection_string": KEYED}, replace(SETTINGS, connection_string=KEYED)),
        (
            f"servicebus://?connection_string={quote(EMULATOR)}&admin_url=http://127.0.0.1:5300",
            {"max_handlers": 3},
            ServiceBusSettings(
                "127.0.0.1", EMULATOR, False, ("127.0.0.1", 5672), None, None, "http://127.0.0.1:5300", 3
            ),
        ),
        (f"servicebus://{HOST}?transport=websocket", {}, replace(SETTINGS, websocket=True, address=(HOST, 443))),
        (
            f"servicebus://{HOST}?endpoint_url=sb://gateway.example:8443",
            {"ssl_ca_certs": "/etc/ca.pem"},
            replace(
                SETTINGS,
                address=("gateway.example", 8443),
                endpoint_url="sb://gateway.example:8443",
                tls=Tls(ca_certs="/etc/ca.pem"),
            ),
        ),
    ],
)
def test_settings(url: str, options: dict[str, Any], expected: ServiceBusSettings) -> None:
    assert settings_of(url, options) == expected
    connect("azure", url, options, now_ms)


@pytest.mark.parametrize(
    ("url", "options", "key"),
    [
        ("servicebus://", {}, "url"),
        (f"servicebus://gateway:c2VjcmV0@{HOST}", {}, "url"),
        (f"servicebus://{HOST}/queue", {}, "url"),
        (f"servicebus://{HOST}:5671", {}, "url"),
        (f"servicebus://{HOST}", {"connection_string": KEYED}, "connection_string"),
        ("servicebus://", {"connection_string": "c2VjcmV0"}, "connection_string"),
        ("servicebus://", {"connection_string": KEYED.replace("sb://", "")}, "connection_string"),
        ("servicebus://", {"connection_string": KEYED.partition(";SharedAccessKey=")[0]}, "connection_string"),
        ("servicebus://", {"connection_string": f"{KEYED};EntityPath=mails"}, "connection_string"),
        ("servicebus://", {"connection_string": EMULATOR.replace("127.0.0.1", "10.0.0.7")}, "connection_string"),
        ("servicebus://", {"connection_string": EMULATOR.replace("127.0.0.1", "emulator")}, "connection_string"),
        (f"servicebus://{HOST}", {"transport": "http"}, "transport"),
        (f"servicebus://{HOST}", {"endpoint_url": "https://gateway.example:8443"}, "endpoint_url"),
        (f"servicebus://{HOST}", {"endpoint_url": "sb://gateway.example"}, "endpoint_url"),
        ("servicebus://", {"connection_string": EMULATOR, "endpoint_url": "sb://10.0.0.7:443"}, "endpoint_url"),
        ("servicebus://", {"connection_string": EMULATOR, "ssl_ca_certs": "/etc/ca.pem"}, "ssl_ca_certs"),
        (f"servicebus://{HOST}", {"admin_url": "http://10.0.0.7:5300"}, "admin_url"),
        (f"servicebus://{HOST}", {"admin_url": "https://c2VjcmV0@127.0.0.1"}, "admin_url"),
        (f"servicebus://{HOST}", {"max_handlers": 2}, "max_handlers"),
        (f"servicebus://{HOST}", {"prefetch": 10}, "prefetch"),
        (f"servicebus://{HOST}", {"timeout_seconds": 0}, "timeout_seconds"),
    ],
)
def test_what_is_wrong_is_named_and_not_quoted(url: str, options: dict[str, Any], key: str) -> None:
    with pytest.raises(ConfigError) as refusal:
        connect("azure", url, options, now_ms)
    assert refusal.value.key == key
    assert "c2VjcmV0" not in str(refusal.value)


def test_the_secret_is_in_no_representation() -> None:
    assert "c2VjcmV0" not in repr(settings_of("servicebus://", {"connection_string": KEYED}))


@pytest.mark.parametrize(
    ("name", "options", "expected"),
    [
        ("mails", {}, ServiceBusQueue("mails")),
        ("Shop/mails_1.eu-west", {"dead_letters": "queue"}, ServiceBusQueue("Shop/mails_1.eu-west")),
        ("mails", {"dead_letters": "native"}, ServiceBusQueue("mails", native_dead=True)),
        ("mails", {"sessions": True}, ServiceBusQueue("mails", sessions=True)),
    ],
)
def test_queues(name: str, options: dict[str, Any], expected: ServiceBusQueue) -> None:
    assert queue_of(name, options) == expected


def test_where_dead_letters_are() -> None:
    assert queue_of("mails", {}).dead_queues == ("mails.dlq", "mails/$DeadLetterQueue")
    assert queue_of("mails", {"dead_letters": "native"}).dead_queues == ("mails/$DeadLetterQueue",)


@pytest.mark.parametrize(
    ("name", "options", "key"),
    [
        (".mails", {}, "native_name"),
        ("mails-", {}, "native_name"),
        ("mails$", {}, "native_name"),
        ("m" * 257, {}, "native_name"),
        ("mails", {"dead_letters": "topic"}, "dead_letters"),
        ("mails", {"sessions": "yes"}, "sessions"),
        ("mails", {"create": "missing"}, "create"),
    ],
)
def test_what_is_wrong_with_a_queue_is_named(name: str, options: dict[str, Any], key: str) -> None:
    with pytest.raises(ConfigError) as refusal:
        queue_of(name, options)
    assert refusal.value.key == key
