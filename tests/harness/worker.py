"""The program that execnet starts as a worker: it hands its standard streams to the process that forks, and ends.

Where that process is not there it becomes the Python that execnet wanted. The arguments are the address of the process,
and those of that Python.
"""

import os
import socket
import sys

if __name__ == "__main__":
    address, *arguments = sys.argv[1:]
    try:
        with socket.socket(socket.AF_UNIX) as forks:
            forks.connect(address)
            socket.send_fds(forks, [b"1"], [0, 1, 2])
    except OSError:
        os.execv(sys.executable, [sys.executable, *arguments])
