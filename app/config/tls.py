"""The certificate and key a server is configured with."""

from __future__ import annotations

import ssl

from app.config.settings import Settings
from app.errors import ConfigError


def check_tls(settings: Settings) -> None:
    """Load the files as a serving process will. Raises ConfigError naming the key; does nothing without TLS."""
    if settings.tls_cert is None or settings.tls_key is None:
        return
    for key, path in (("tls_cert", settings.tls_cert), ("tls_key", settings.tls_key)):
        if not path.is_file():
            raise ConfigError(key=key, reason=f"{path} is not a file")
    try:
        # The empty password keeps OpenSSL from asking the terminal for one.
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(settings.tls_cert, settings.tls_key, password="")
    except ssl.SSLError as error:
        why = error.reason.replace("_", " ").lower() if error.reason else "not PEM, or the key is encrypted"
        raise ConfigError(key="tls_cert", reason=f"cannot be used with tls_key: {why}") from None
    except OSError as error:
        raise ConfigError(key="tls_cert", reason=f"cannot be read with tls_key: {error.strerror}") from None
