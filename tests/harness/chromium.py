#!/usr/bin/env python3
"""Starts Chromium so that it does not learn of changes of the machine's network; takes Chromium's arguments.

A test that starts a container adds an interface, and another one adds an address. Chromium reads such changes from a
netlink socket, and then every request that is about to connect fails with ERR_NETWORK_CHANGED. It has no option against
it. Where the kernel gives it no such socket, it takes the network as always there:
https://chromium.googlesource.com/chromium/src/+/main/net/base/address_tracker_linux.cc
"""

from __future__ import annotations

import ctypes
import os
import platform
import shutil
import socket
import struct
import sys

NAMES = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
"""The program without a user interface is first: it takes less than half of the CPU."""
_SOCKET = {"x86_64": (0xC000003E, 41), "aarch64": (0xC00000B7, 198)}
"""Of a machine: its AUDIT_ARCH of linux/audit.h, and the number of the system call ``socket``."""
_NO_NEW_PRIVS, _SECCOMP, _FILTER = 38, 22, 2
"""PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP and SECCOMP_MODE_FILTER: linux/prctl.h, linux/seccomp.h"""
_LOAD, _EQUAL, _RETURN = 0x20, 0x15, 0x06
"""BPF_LD|BPF_W|BPF_ABS, BPF_JMP|BPF_JEQ|BPF_K and BPF_RET|BPF_K: linux/bpf_common.h"""
_ALLOW, _ERROR = 0x7FFF0000, 0x00050000
"""SECCOMP_RET_ALLOW and SECCOMP_RET_ERRNO"""
_NUMBER, _ARCH, _FAMILY, _PROTOCOL = 0, 4, 16, 32
"""Places in ``struct seccomp_data``; the low half of an argument comes first."""
_ROUTE = 0
"""NETLINK_ROUTE: linux/netlink.h"""


class _Program(ctypes.Structure):
    """``struct sock_fprog``"""

    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_char_p))


def refuse_netlink() -> None:
    """Let ``socket(AF_NETLINK, …, NETLINK_ROUTE)`` fail with EAFNOSUPPORT in this process and in what it starts.

    It cannot be undone. Does nothing on a machine that is not in the table. Raises OSError.
    """
    if sys.platform != "linux" or platform.machine() not in _SOCKET:
        return
    arch, number = _SOCKET[platform.machine()]
    conditions = ((_ARCH, arch), (_NUMBER, number), (_FAMILY, socket.AF_NETLINK), (_PROTOCOL, _ROUTE))
    program = b""
    for after, (place, value) in enumerate(conditions, start=1):
        # The first that does not hold jumps to the last instruction.
        program += _instruction(_LOAD, place)
        program += _instruction(_EQUAL, value, otherwise=2 * (len(conditions) - after) + 1)
    program += _instruction(_RETURN, _ERROR | 97)  # EAFNOSUPPORT
    program += _instruction(_RETURN, _ALLOW)
    call = ctypes.CDLL(None, use_errno=True).prctl
    filtered = _Program(len(program) // 8, program)
    for arguments in ((_NO_NEW_PRIVS, 1, 0, 0, 0), (_SECCOMP, _FILTER, ctypes.byref(filtered), 0, 0)):
        if call(*arguments) != 0:
            raise OSError(ctypes.get_errno(), f"prctl {arguments[0]}")


def _instruction(code: int, value: int, otherwise: int = 0) -> bytes:
    """``struct sock_filter``"""
    return struct.pack("HBBI", code, 0, otherwise, value)


def found() -> str | None:
    """Chromium's program, if there is one."""
    return next(filter(None, map(shutil.which, NAMES)), None)


if __name__ == "__main__":
    chromium = found()
    if chromium is None:
        sys.exit("Chromium is missing")
    refuse_netlink()
    os.execv(chromium, [chromium, *sys.argv[1:]])
