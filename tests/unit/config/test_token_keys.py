"""The token key is created once, also when several processes start at the same time."""

from __future__ import annotations

import json
import stat
import subprocess
import sys

import pytest

from babelgate.config import settings
from babelgate.config.token_keys import KEY_FILE, check_token_keys, token_keys
from babelgate.errors import ConfigError

PRINT_KEY = """
import sys
from pathlib import Path
from babelgate.config import settings
from babelgate.config.token_keys import token_keys
print(token_keys(settings.load(None, {"BABELGATE_STATE_DIR": sys.argv[1]}))[0].secret.hex())
"""


@pytest.fixture
def here(tmp_path):
    return settings.load(None, {"BABELGATE_STATE_DIR": str(tmp_path / "state")})


def test_is_made_once_and_private(here):
    (key,) = token_keys(here)
    assert token_keys(here) == [key]
    assert len(key.secret) == 32
    assert [path.name for path in here.state_dir.iterdir()] == [KEY_FILE]
    assert stat.S_IMODE((here.state_dir / KEY_FILE).stat().st_mode) == 0o600


def test_processes_that_start_at_once_agree(tmp_path):
    command = [sys.executable, "-c", PRINT_KEY, str(tmp_path)]
    started = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(4)]
    assert len({process.communicate()[0] for process in started}) == 1
    assert [path.name for path in tmp_path.iterdir()] == [KEY_FILE]


def test_configured_keys_win(tmp_path):
    keys = json.dumps([{"id": "new", "secret": "n" * 32}, {"id": "old", "secret": "o" * 32}])
    found = token_keys(settings.load(None, {"BABELGATE_STATE_DIR": str(tmp_path), "BABELGATE_TOKEN_KEYS": keys}))
    assert [(key.id, key.secret) for key in found] == [("new", b"n" * 32), ("old", b"o" * 32)]
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("content", ["", "abc", "00" * 16, "zz" * 32, "ä"])
def test_a_damaged_file_is_refused_in_words(here, content):
    here.state_dir.mkdir()
    (here.state_dir / KEY_FILE).write_text(content)
    for refuses in (token_keys, check_token_keys):
        with pytest.raises(ConfigError, match="does not contain a key of 32 bytes"):
            refuses(here)


def test_a_state_dir_that_cannot_be_is_refused_in_words(tmp_path):
    (tmp_path / "file").touch()
    loaded = settings.load(None, {"BABELGATE_STATE_DIR": str(tmp_path / "file" / "x")})
    for refuses in (token_keys, check_token_keys):
        with pytest.raises(ConfigError, match="state_dir"):
            refuses(loaded)


def test_the_check_makes_nothing(here):
    check_token_keys(here)
    assert not here.state_dir.exists()
