"""Open Job Spec jobs as envelopes, and envelopes as jobs. Pure, no I/O.

What both know is mapped; what only a job knows (priority, timeout, retry, tags, its other ``meta`` …) stands as one
object in the envelope's ``meta.ext.ojs``, by the names that the job has for it. What only an envelope knows stands in
the job's ``meta``, as ``urn``, ``lang``, ``ext`` and ``bq_…``. So either comes back from the other:

* an envelope that becomes a job and is read again has the same bytes, number literals and key order included;
* a job that becomes an envelope and is published again keeps every attribute that is the client's to set.

An attribute that the specification leaves to the server (``state``, ``result`` …) has no place in an envelope.
"""

from app.ojs.editing import dead_letter_of, discarded, retried, revived
from app.ojs.publication import as_entry
from app.ojs.reading import Attributes, MessageProperties, attributes_of, envelope_of, members, value
from app.ojs.terms import MEDIA_TYPE
from app.ojs.writing import Job, job_of

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
    "retried",
    "revived",
    "value",
]
