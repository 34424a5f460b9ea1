"""The envelope codec: bytes to envelope and back. Pure, without I/O. Every package may import it.

The frame is canonical and the payload is the client's. Frame keys are in the contract's order, compact and in UTF-8.
``data`` is minified and spliced in, so that key order, repeated keys and number literals stay as sent. Unknown keys are
kept, after the known ones. A full envelope that is already canonical is not changed. Bytes found on a queue are never
re-encoded; only ``attempts`` and ``dead_letter`` are spliced in.

A refused publish has these codes, each with an RFC 6901 pointer. The first problem of a body is the first one here:

* syntax, alone: ``invalid_json`` (also a byte order mark, invalid UTF-8, NaN, trailing text), ``too_deep``
* the contract's: ``missing_urn``, ``missing_meta``, ``unsupported_schema_version``, ``invalid_data``,
  ``missing_trace_id``, ``invalid_attempts``
* alone, for a job of the Open Job Spec: ``invalid_job``
* the project's own: ``invalid_id``, ``invalid_created_at``, ``invalid_queue``, ``queue_mismatch``, ``invalid_lang``,
  ``forbidden_key``, ``reserved_key``, ``number_out_of_range``, ``lone_surrogate``,
  ``misplaced_option``
* of an entry or a draft: ``invalid_entry``, ``invalid_delay``, ``invalid_ordering_key``, ``invalid_headers``,
  ``invalid_idempotency_key``, ``invalid_broker_properties``, ``read_only_property``, ``broker_properties_mismatch``,
  ``unknown_member``

``trace_id`` may be any non-blank string, and ``meta.id`` any of 1 to 128 printable ASCII characters: the schema's
``format: uuid`` is an annotation.
:mod:`babelgate.envelope.reception` has the codes of invalid bodies found on a queue.
"""

from babelgate.envelope.contract import DeadSummary, Envelope, Limits, Poison, Publication, Received
from babelgate.envelope.editing import (
    canonical,
    dead_letter_block,
    dead_letter_record,
    describe_dead,
    original,
    redriven,
    with_attempts,
    with_data,
)
from babelgate.envelope.fast_path import inspect, read_ordinary, read_publication

__all__ = [
    "DeadSummary",
    "Envelope",
    "Limits",
    "Poison",
    "Publication",
    "Received",
    "canonical",
    "dead_letter_block",
    "dead_letter_record",
    "describe_dead",
    "inspect",
    "original",
    "read_ordinary",
    "read_publication",
    "redriven",
    "with_attempts",
    "with_data",
]
