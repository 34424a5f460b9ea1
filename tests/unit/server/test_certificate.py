"""The dates of a certificate, as a client sees them in a handshake."""

from __future__ import annotations

import ssl
import subprocess
from pathlib import Path

import pytest

from babelgate.clock import now_ms
from babelgate.server.certificate import SOON_SECONDS, date_warnings
from tests.harness.local import certify

DAY_MS = 86_400_000


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with a certificate that is valid for two days, and one that is valid for thirty."""
    directory = tmp_path_factory.mktemp("certificates")
    certify(directory)
    key = ["-newkey", "rsa:2048", "-nodes", "-keyout", "long.key"]
    arguments = ["req", "-x509", *key, "-days", "30", "-subj", "/CN=x", "-out", "long.crt"]
    subprocess.run(["openssl", *arguments], cwd=directory, check=True, capture_output=True)
    return directory


@pytest.mark.parametrize(
    ("name", "days", "text"),
    [
        ("server", 3, "has expired on "),
        ("server", -1, "is valid from "),
        ("server", 0, "expires on "),
        ("long", 0, None),
        ("long", 29, "expires on "),
        ("long", 31, "has expired on "),
    ],
)
def test_dates_are_warned_of(place: Path, name: str, days: int, text: str | None) -> None:
    found = date_warnings(place / f"{name}.crt", place / f"{name}.key", now_ms() + days * DAY_MS)
    assert [text is not None and f"{name}.crt {text}" in each for each in found] == [True] * (text is not None)


def test_the_first_certificate_of_a_chain_counts(place: Path) -> None:
    chain = place / "chain.crt"
    chain.write_text((place / "server.crt").read_text() + (place / "ca.crt").read_text())
    (warning,) = date_warnings(chain, place / "server.key", now_ms() + 3 * DAY_MS)
    assert "has expired" in warning


def test_what_cannot_be_read_is_left_to_the_checks(place: Path) -> None:
    assert date_warnings(place / "missing.crt", place / "server.key", now_ms()) == []
    assert date_warnings(place / "server.crt", place / "ca.key", now_ms()) == []


def test_the_text_has_the_end_of_the_certificate(place: Path) -> None:
    shown = subprocess.run(
        ["openssl", "x509", "-in", place / "server.crt", "-noout", "-enddate"],
        check=True,
        capture_output=True,
        text=True,
    )
    ends = ssl.cert_time_to_seconds(shown.stdout.strip().partition("=")[2])
    for before, count in ((SOON_SECONDS + 1, 1), (1, 1), (0, 1)):
        found = date_warnings(place / "server.crt", place / "server.key", round((ends - before) * 1000))
        assert len(found) == count
        assert ("expired" in found[0]) == (before == 0)
