"""Loads or creates the keys that sign ack tokens."""

from __future__ import annotations

import contextlib
import hashlib
import os
import secrets
from pathlib import Path

from babelgate.config.settings import Settings
from babelgate.errors import ConfigError
from babelgate.gateway.ack_tokens import TokenKey
from babelgate.runtime.files import check_writable

KEY_FILE = "token.key"
_SECRET_BYTES = 32


def token_keys(settings: Settings) -> list[TokenKey]:
    """Return the configured keys, else the key of ``state_dir/token.key``, which is created when it is missing.

    Processes that start at the same time use the same key. Raises ConfigError when the file cannot be read or created.
    """
    if settings.token_keys:
        return [TokenKey(key.id, key.secret.get_secret_value().encode()) for key in settings.token_keys]
    path = settings.state_dir / KEY_FILE
    try:
        if not path.exists():
            _create(path)
        secret = bytes.fromhex(path.read_text("ascii"))
    except OSError as error:
        raise ConfigError(key="state_dir", reason=f"{path}: {error.strerror}") from None
    except ValueError:
        secret = b""
    if len(secret) < _SECRET_BYTES:
        raise ConfigError(
            key="state_dir", reason=f"{path} does not contain a key of {_SECRET_BYTES} bytes in hexadecimal"
        )
    return [TokenKey(hashlib.sha256(secret).hexdigest()[:8], secret)]


def check_token_keys(settings: Settings) -> None:
    """Raise the ConfigError that :func:`token_keys` would raise, without creating the file."""
    if settings.token_keys or (settings.state_dir / KEY_FILE).exists():
        token_keys(settings)
    else:
        check_writable(settings.state_dir, "state_dir")


def _create(path: Path) -> None:
    """Write a new key to a temporary file, then link it to ``path``. The first process to link wins, and no process
    reads an incomplete file."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    draft = path.with_name(f"{KEY_FILE}.{secrets.token_hex(8)}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "w", encoding="ascii") as file:
            file.write(secrets.token_hex(_SECRET_BYTES) + "\n")
            file.flush()
            os.fsync(file.fileno())
        with contextlib.suppress(FileExistsError):
            os.link(draft, path)
    finally:
        draft.unlink()
