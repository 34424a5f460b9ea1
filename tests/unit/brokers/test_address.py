"""Which URLs of a broker lead to the same server, as far as their text says."""

from __future__ import annotations

from typing import Any

import pytest

from babelgate.brokers.address import address_of

CONNECTION = "Endpoint=sb://Shop.servicebus.windows.net/;SharedAccessKeyName=a;SharedAccessKey="


def address(url: str, **options: Any) -> str:
    return address_of("x", url, options)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (("redis://h:1/0", {}), ("redis://user:secret@H:1/0?ssl_cert_reqs=none", {"prefix": "p"})),
        (("rediss://h/0", {}), ("redis://h/0", {})),
        (("amqp://a:b@h/shop", {}), ("amqps://c:d@h/shop?heartbeat=5", {})),
        (("kafka://a:1,b:2", {}), ("kafka://u:p@b:2,a:1", {"sasl_mechanism": "PLAIN"})),
        (("sqs://eu-1?endpoint_url=http://h", {}), ("sqs://eu-1", {"endpoint_url": "http://h"})),
        (
            ("servicebus://", {"connection_string": CONNECTION + "k"}),
            ("servicebus://", {"connection_string": CONNECTION + "l"}),
        ),
    ],
)
def test_credentials_and_options_do_not_count(
    one: tuple[str, dict[str, Any]], other: tuple[str, dict[str, Any]]
) -> None:
    found = [address(url, **options) for url, options in (one, other)]
    assert found[0] == found[1]
    assert "secret" not in found[1] and "SharedAccessKey" not in found[1]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (("redis://h/0", {}), ("redis://h/1", {})),
        (("redis://h", {}), ("redis://h", {"db": 1})),
        (("redis://h:1", {}), ("redis://h:2", {})),
        (("redis://h", {}), ("amqp://h", {})),
        (("sqlite:///a.db", {}), ("sqlite:///b.db", {})),
        (("sqs://eu-1", {}), ("sqs://eu-1", {"assume_role_arn": "arn:x"})),
        (
            ("servicebus://", {"connection_string": CONNECTION}),
            ("servicebus://", {"connection_string": "Endpoint=sb://b/"}),
        ),
    ],
)
def test_another_place_is_another_address(one: tuple[str, dict[str, Any]], other: tuple[str, dict[str, Any]]) -> None:
    assert address(one[0], **one[1]) != address(other[0], **other[1])
