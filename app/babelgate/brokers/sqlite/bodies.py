"""Bodies as the file stores them: as they are, or encrypted for queues whose route says so."""

from __future__ import annotations

from collections.abc import Sequence

from babelgate.errors import BrokerUnavailable
from babelgate.privacy.ciphers import BodyCipher, is_encrypted, plain
from babelgate.runtime import turns


class StoredBodies:
    """Writes and reads the bodies of the broker ``broker``. ``cipher`` may be replaced at any time.

    The name of the queue in the file is the context of the encryption, so that a row does not pass for one of another
    queue. Usable by several threads at once.
    """

    def __init__(self, broker: str) -> None:
        self.cipher = BodyCipher()
        self._broker = broker

    def written(self, queue: str, body: bytes, encrypt: bool) -> bytes:
        """``body`` as it is stored. Raises BrokerUnavailable where it cannot be encrypted."""
        if not encrypt:
            return plain(body)
        cipher = self.cipher
        if not cipher.has_keys:
            raise BrokerUnavailable(self._broker, "body_keys has no key any more")
        return cipher.encrypted(body, queue)

    def read(self, queue: str, stored: bytes) -> bytes:
        """The body. Raises BodyUnreadable."""
        return self.cipher.decrypted(stored, queue, self._broker)

    async def read_all(self, queue: str, stored: Sequence[bytes]) -> Sequence[bytes]:
        """The bodies, in turns of the event loop. Raises BodyUnreadable for the first that cannot be read."""
        if not any(map(is_encrypted, stored)):
            return [self.read(queue, each) for each in stored]

        def read(each: bytes) -> bytes:
            return self.read(queue, each)

        return await turns.mapped(read, stored, len, background=True)
