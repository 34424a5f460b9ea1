"""Converts Open Job Spec jobs to envelopes and back. Pure, without I/O. Brokers and all layers above may import it.

Attributes that both have are mapped. Attributes that only a job has (priority, timeout, retry, tags, its other ``meta``
…) are in the envelope's ``meta.ext.ojs``, under the names of the job. Members that only an envelope has are in the
job's ``meta``, as ``urn``, ``lang``, ``ext`` and ``bq_…``. So the conversion can be reversed:

* an envelope that is written as a job and read again has the same bytes, including number literals and key order;
* a job that is read as an envelope and published again keeps every attribute that a client may set.

Attributes that the specification reserves for the server (``state``, ``result`` …) are not in an envelope.
"""

from babelgate.ojs.editing import dead_letter_of, discarded, retried, revived
from babelgate.ojs.publication import as_entry, places_in_job
from babelgate.ojs.reading import Attributes, MessageProperties, attributes_of, envelope_of, members, value
from babelgate.ojs.terms import MEDIA_TYPE
from babelgate.ojs.writing import Job, job_of

__all__ = [
    "MEDIA_TYPE",
    "Attributes",
    "Job",
    "MessageProperties",
    "as_entry",
    "attributes_of",
    "dead_letter_of",
    "discarded",
    "envelope_of",
    "job_of",
    "members",
    "places_in_job",
    "retried",
    "revived",
    "value",
]
