"""The settings of web pages: their origins, and the bounds of their tokens."""

from __future__ import annotations

import pytest
import yaml

from babelgate.config import settings
from babelgate.config.pages import page_origin
from babelgate.errors import ConfigError

ORIGIN = "https://shop.example"
CORS = {"cors": {"origins": [ORIGIN]}}


def token(rights=("send",), **page):
    return {
        "name": "page",
        "sha256": "ab" * 32,
        "rights": {"clicks": list(rights)},
        "page": {"origins": [ORIGIN]} | page,
    }


def auth(*tokens):
    return {"auth": {"tokens": list(tokens or [{"name": "a", "sha256": "cd" * 32, "rights": {}}])}}


@pytest.fixture
def load(tmp_path):
    def load(config):
        path = tmp_path / "babelgate.yaml"
        path.write_text(yaml.safe_dump({"brokers": {"local": "sqlite:///x.db"}, **config}))
        return settings.load(path, {})

    return load


@pytest.mark.parametrize(
    ("given", "sent"),
    [
        (ORIGIN, ORIGIN),
        ("HTTPS://Shop.Example", ORIGIN),
        ("https://shop.example:443", ORIGIN),
        ("http://shop.example:80", "http://shop.example"),
        ("http://shop.example:443", "http://shop.example:443"),
        ("http://localhost:03000", "http://localhost:3000"),
        ("http://[::1]:3000", "http://[::1]:3000"),
        ("http://[::1]", "http://[::1]"),
        ("capacitor://localhost", "capacitor://localhost"),
    ],
)
def test_an_origin_has_the_form_that_browsers_send(given, sent):
    assert page_origin(given) == sent


@pytest.mark.parametrize(
    "given",
    ["", "*", "null", "shop.example", "https://", "https://shop.example/", "https://shop.example/a", "https://a b",
     "https://*.shop.example", "https://user@shop.example", "https://bücher.example", "https://shop.example:0",
     "https://shop.example:65536", "https://shop.example:x", "https://shop.example?", "//shop.example"],
)  # fmt: skip
def test_what_is_no_origin_is_refused(load, given):
    for policy in ({"origins": [given]}, {"origins": [ORIGIN, given]}):
        with pytest.raises(ConfigError) as caught:
            load({"cors": policy})
        assert caught.value.key.startswith("cors.origins")


@pytest.mark.parametrize(
    ("config", "key"),
    [
        ({"cors": {"origins": ["*"]}}, "cors.origins"),
        ({"cors": {"origins": ["*"]}, "auth": "none"}, "cors.origins"),
        ({"queues": {"q": {"broker": "local", "cors": {"origins": ["*"]}}}}, "queues.q.cors.origins"),
        ({"default": {"broker": "local", "cors": {"origins": ["*"]}}}, "default.cors.origins"),
        ({"cors": {"origins": ["*", ORIGIN]}, **auth()}, "cors.origins"),
        ({"cors": {"origins": [ORIGIN], "headers": ["a b"]}}, "cors.headers.0"),
        ({"cors": {"origins": [ORIGIN], "max_age": -1}}, "cors.max_age"),
        ({"cors": {"origins": [ORIGIN], "max_age_seconds": 1}}, "cors.max_age_seconds"),
        (CORS | auth(token(["send", "listen"])), "auth.tokens.0.page"),
        (CORS | auth(token(["manage"])), "auth.tokens.0.page"),
        (CORS | auth(token(origins=["*"])), "auth.tokens.0.page.origins.0"),
        (CORS | auth(token(origins=[])), "auth.tokens.0.page.origins"),
        (CORS | auth(token(origins=["https://other.example"])), "auth.tokens.0.page.origins"),
        (auth(token()), "auth.tokens.0.page.origins"),
        (CORS | auth(token(per_minute=0)), "auth.tokens.0.page.per_minute"),
        (CORS | auth(token(max_message_bytes=1)), "auth.tokens.0.page.max_message_bytes"),
    ],
)
def test_what_is_not_safe_is_refused_at_the_start(load, config, key):
    with pytest.raises(ConfigError) as caught:
        load(config)
    assert caught.value.key == key


@pytest.mark.parametrize(
    "config",
    [
        CORS,
        CORS | {"auth": "none"},
        {"cors": {"origins": "https://shop.example, http://localhost:3000"}},
        {"cors": {"origins": []}},
        {"cors": {"origins": ["*"]}, **auth()},
        CORS | auth(token()),
        {"cors": {"origins": ["*"]}, **auth(token())},
        {"queues": {"clicks": {"broker": "local", **CORS}}, **auth(token())},
    ],
)
def test_what_is_safe_is_accepted(load, config):
    load(config)
