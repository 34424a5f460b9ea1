"""Optional protocols of bindings: settings of a broker that drop what it has accepted, and files that it needs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol, runtime_checkable

from babelgate.brokers.binding import NativeQueue
from babelgate.privacy.ciphers import BodyCipher


@runtime_checkable
class WarnsOfQueues(Protocol):
    """A broker whose settings of a queue may drop messages that it has accepted."""

    async def queue_warnings(self, queue: NativeQueue, kept_seconds: float) -> Sequence[str]:
        """Sentences about the settings of ``queue`` with which the broker drops or moves messages that it has accepted.

        ``kept_seconds``: how long a message may have to stay there; a broker that keeps none without end is warned of
        where it keeps them for less. Empty for a queue that does not exist, and where the broker may not be asked. At
        most 2 s. Raises BrokerUnavailable.
        """


@runtime_checkable
class EncryptsBodies(Protocol):
    """A broker that is a file of this program, and encrypts the bodies of queues that are ``encrypted``."""

    def use_body_keys(self, cipher: BodyCipher) -> None:
        """Encrypt and decrypt by ``cipher`` from now on. No I/O."""


@runtime_checkable
class KeepsFiles(Protocol):
    """A broker that is files of this machine. The start-up checks see whether they can be written."""

    @property
    def files(self) -> Sequence[Path]:
        """The files, which are created in directories that must exist."""
