"""Archives of the classes that servers in Java load: ``python -m tests.brokers.classes kafka pulsar``.

tests/harness/archives.py fetches the servers. With its archive a server starts with half of the CPU time.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from tests.brokers.artemis.server import ArtemisServer
from tests.brokers.kafka.server import KafkaServer
from tests.brokers.pulsar.server import PulsarServer
from tests.brokers.sqs.elasticmq import ElasticMq
from tests.harness.archives import ARTEMIS, ELASTICMQ, KAFKA, PULSAR
from tests.harness.java import JavaServer, archive_classes

SERVERS: Mapping[str, tuple[Path, Callable[[Path], JavaServer]]] = {
    "artemis": (ARTEMIS, ArtemisServer),
    "kafka": (KAFKA, KafkaServer),
    "pulsar": (PULSAR, PulsarServer),
    "sqs": (ELASTICMQ, ElasticMq),
}
"""By kind of broker: the folder of its jars, and its server."""


if __name__ == "__main__":
    for each in sys.argv[1:] or SERVERS:
        archive_classes(*SERVERS[each])
