"""Converts CloudEvents 1.0 to publish entries, and envelopes to CloudEvents. Pure, without I/O. Callers of the gateway
(``http``, ``streams``, ``push``) may import it.

``type`` is the job, ``id`` is ``meta.id``, ``partitionkey`` is the ordering key, and JSON objects are the data. All
other attributes are in ``meta.ext.cloudevents`` under their names, so that an event which is published and received
again has all its attributes and the same data. ``docs/cloudevents.md`` has the table.

The rules are those of version 1.0.2 of the specification, its JSON format and its HTTP binding:
https://github.com/cloudevents/spec/tree/v1.0.2/cloudevents
"""

from babelgate.cloudevents.binary import binary_entry, binary_of, binary_places, fingerprint_of, is_binary
from babelgate.cloudevents.reading import structured_entry, structured_places
from babelgate.cloudevents.terms import BATCHED, EVENT_FIELDS, PREFIX, STRUCTURED, HeaderProblem, Place
from babelgate.cloudevents.writing import Delivered, event_of

__all__ = [
    "BATCHED",
    "EVENT_FIELDS",
    "PREFIX",
    "STRUCTURED",
    "Delivered",
    "HeaderProblem",
    "Place",
    "binary_entry",
    "binary_of",
    "binary_places",
    "event_of",
    "fingerprint_of",
    "is_binary",
    "structured_entry",
    "structured_places",
]
