"""The browser of the tests does not see changes of the machine's network."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

from tests.harness.chromium import refuse_netlink

_OPENS = f"""
import socket
from {refuse_netlink.__module__} import refuse_netlink

def opens(family, kind, protocol=0):
    try:
        socket.socket(family, kind, protocol).close()
    except OSError as error:
        return error.errno
    return 0

route = (socket.AF_NETLINK, socket.SOCK_RAW, 0)
others = ((socket.AF_INET, socket.SOCK_STREAM), (socket.AF_UNIX, socket.SOCK_STREAM))
assert opens(*route) == 0
refuse_netlink()
print(opens(*route), [opens(*each) for each in others])
"""


@pytest.mark.skipif(
    sys.platform != "linux" or platform.machine() not in ("x86_64", "aarch64"), reason="the filter is for these"
)
def test_it_cannot_open_a_netlink_socket() -> None:
    ended = subprocess.run([sys.executable, "-c", _OPENS], capture_output=True, text=True, check=False)
    assert (ended.stdout, ended.stderr) == ("97 [0, 0]\n", "")
