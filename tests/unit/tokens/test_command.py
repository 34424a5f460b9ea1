"""What the command that makes a token without a gateway writes, says and refuses."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from babelgate.cli.tokens import tokens
from babelgate.tokens.file import MadeToken, TokenFile


def create(directory: Path, *arguments: str, **more: Any) -> Result:
    """Make a token in ``directory``, which is the current one, too."""
    config = directory / "babelgate.yaml"
    tree = {"auth": {"made_tokens": {"enabled": True}}, "state_dir": "state", **more}
    config.write_text(json.dumps(tree))
    return CliRunner().invoke(tokens, ["create", "--offline", "--config", str(config), *arguments])


def only(directory: Path) -> MadeToken:
    (token,) = TokenFile(directory / "state").read().values()
    return token


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_rights_of_one_queue_add_up(tmp_path: Path) -> None:
    done = create(tmp_path, "shop", "--right", "q=send", "--right", "r=send", "--right", "q=listen,send")
    assert done.exit_code == 0, done.output
    assert only(tmp_path).rights == {"q": ("send", "listen"), "r": ("send",)}


def test_the_directory_is_printed_whole_and_doubted_without_a_key(tmp_path: Path) -> None:
    done = create(tmp_path, "shop", "--right", "*=send")
    assert f"It is kept in {tmp_path / 'state'}. That has no token.key" in done.stderr
    (tmp_path / "state" / "token.key").write_text("00" * 32)
    done = create(tmp_path, "more", "--right", "*=send")
    assert f"It is kept in {tmp_path / 'state'}." in done.stderr and "token.key" not in done.stderr


def test_names_of_other_callers_are_refused(tmp_path: Path) -> None:
    accept = [{"content_type": "text/plain", "job": "a", "sender": "github"}]
    more = {"brokers": {"local": "sqlite:///x.db"}, "queues": {"q": {"broker": "local", "accept": accept}}}
    for name in ("github", "push", "anyone", "nobody"):
        done = create(tmp_path, name, "--right", "*=send", **more)
        assert done.exit_code == 1 and "token_name_taken" in done.stderr


PAGE = ("clicks", "--right", "clicks.*=send", "--page", "https://Shop.example:443")


def test_a_token_of_a_page(tmp_path: Path) -> None:
    """A version that knows no pages finds no right in it."""
    done = create(tmp_path, *PAGE, "--per-minute", "600", "--json")
    assert done.exit_code == 0, done.output
    made = only(tmp_path)
    assert made.rights == {} and made.granted == {"clicks.*": ("send",)}
    bounds = {"origins": ["https://shop.example"], "per_minute": 600, "max_message_bytes": 16_384}
    shown = json.loads(done.stdout)["token"]
    assert {name: list(value) if isinstance(value, list) else value for name, value in shown["page"].items()} == bounds


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((*PAGE[:2], "clicks.*=send,listen", *PAGE[3:]), "no other right than send"),
        ((*PAGE[:4], "shop.example"), "must be an origin"),
        ((*PAGE[:3], "--per-minute", "600"), "name it by --page"),
        ((*PAGE, "--max-message-bytes", "9000000000"), "64<=x<=2147483647"),
    ],
)
def test_a_token_of_a_page_that_is_none(tmp_path: Path, arguments: tuple[str, ...], said: str) -> None:
    done = create(tmp_path, *arguments)
    assert done.exit_code != 0 and said in done.output
    assert not (tmp_path / "state" / "tokens").exists()
