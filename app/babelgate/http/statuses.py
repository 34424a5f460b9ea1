"""What each status of each operation means to its caller, for the OpenAPI document."""

from __future__ import annotations

_KINDS: dict[str, tuple[str, ...]] = {
    "publish": ("publish_message", "publish_batch"),
    "receive": ("receive_messages", "receive_messages_get"),
    "settle": ("ack_messages", "nack_messages", "reject_messages", "extend_messages", "settle_messages"),
    "probe": ("livez", "startupz", "readyz"),
}
_KIND = {operation: kind for kind, operations in _KINDS.items() for operation in operations}
_NOTHING = {
    "publish": " Nothing was published.",
    "receive": " No message was handed out.",
    "settle": " Nothing was settled.",
    "change": " Nothing was changed.",
}
_LATER = " Repeat it after `Retry-After` seconds."

_TEXTS: dict[int, str] = {
    400: "The request is malformed: its JSON, or a parameter that is unknown, repeated or out of bounds.{nothing} "
    "The same request fails again.",
    401: "The request has no valid bearer token.{nothing}",
    403: "The token lacks the right that this operation requires, or a page of another site sent the request.{nothing}",
    404: "No route of the configuration leads to this queue.{nothing}",
    408: "The rest of the request did not arrive in time.{nothing} Repeat it.",
    413: "The body is larger than the limit: `actual` and `limit` say by how much.{nothing}",
    415: "The media type or the `Content-Encoding` of the body is not supported.{nothing}",
    422: "The broker of this queue does not support the operation.{nothing}",
    429: "The gateway is overloaded.{nothing}" + _LATER,
    431: "The head of the request is larger than the gateway accepts.{nothing}",
    500: "An unexpected error. The request may have had an effect. The log has details under the id in `X-Request-Id`.",
    502: "The broker refused the operation, and would refuse it again until its set-up changes.{nothing}",
    503: "The gateway is stopping, or the broker is unavailable or full.{nothing}" + _LATER,
    504: "The broker did not answer in time. The operation may have taken effect.",
}
_OF_KIND: dict[tuple[str, int], str] = {
    (
        "publish",
        422,
    ): "The body is JSON and no valid message, or asks for what the broker of this queue does not support. "
    "`errors` gives each defect with its pointer. Nothing was published, and the same body fails again.",
    (
        "publish",
        504,
    ): "The broker did not confirm in time: the message may be published or not. With an idempotency key "
    "the request can be repeated safely, else a repetition may publish it twice.",
    (
        "receive",
        422,
    ): "`lease_seconds` is beyond the maximum of the broker, or the broker cannot lease messages of this queue. No "
    "message was handed out.",
    (
        "receive",
        504,
    ): "The broker did not answer in time. A message that it reserved is delivered again when its lease ends.",
    (
        "settle",
        400,
    ): "The body is malformed, or, for a call with one token, the token was not issued for this queue. Nothing "
    "was settled, and the same request fails again.",
    (
        "settle",
        409,
    ): "For a call with one token: the lease is over, because its deadline has passed or another call has "
    "ended it. Nothing was settled. The message is delivered again, so undo or tolerate what its handler did.",
    ("settle", 422): "A delay or lease is beyond the maximum of the broker. Nothing was settled.",
    (
        "settle",
        504,
    ): "The broker, or the replica that delivered the message, did not answer in time. The settle may have "
    "taken effect. Repeating it is harmless.",
    ("probe", 503): "The gateway is starting or stopping, or a required broker does not answer. Send it no traffic.",
}
_OF_OPERATION: dict[tuple[str, int], str] = {
    ("list_queues", 200): "The queues of which the caller may know.",
    ("get_queue", 200): "The queue, as its broker reports it now.",
    ("purge_queue", 200): "The ready and delayed messages are removed for good, or only counted if `dry_run` is set.",
    ("peek_messages", 200): "Messages that stay available to every consumer; an empty list when there are none.",
    ("validate_message", 200): "A publish of this body would be accepted now. Nothing was written.",
    ("list_brokers", 200): "The brokers that the caller may manage. One that is down is listed too.",
    ("list_dead_letters", 200): "A page of dead letters. Only `next_cursor` says whether it is the last one.",
    ("redrive_dead_letters", 200): "The redrive has ended. `failed` and `complete` say whether a dead letter is left.",
    ("purge_dead_letters", 200): "The dead letters are removed for good, or only counted if `dry_run` is set.",
    ("get_dead_letter", 200): "The dead letter. It stays where it is.",
    ("delete_dead_letter", 200): "The dead letter is removed for good.",
    ("delete_dead_letters", 200): "All of the dead letters are removed for good.",
    ("delete_dead_letters", 207): "Some dead letters were removed, others were not; see their results.",
    ("redrive_dead_letter", 200): "The message is published, and the dead letter is removed.",
    ("redrive_dead_letters", 202): "The job has started; `Location` leads to it.",
    ("list_redrives", 200): "The redrive jobs of this host, running and ended.",
    ("get_redrive", 200): "The job as it is now.",
    ("cancel_redrive", 200): "The job stops after the dead letters that it is sending.",
    ("resume_redrive", 200): "The job goes on with what is left.",
    ("get_dead_letter", 404): "The queue is unknown, or it has no such dead letter: it was redriven or removed.",
    ("delete_dead_letter", 404): "The queue is unknown, or it has no such dead letter: it was redriven or removed.",
    ("redrive_dead_letter", 404): "A queue is unknown, or it has no such dead letter: it was redriven or removed.",
    ("get_redrive", 404): "The queue is unknown, or no job of this host has this id.",
    ("cancel_redrive", 404): "The queue is unknown, or no job of this host has this id.",
    ("resume_redrive", 404): "The queue is unknown, or no job of this host has this id.",
    ("redrive_dead_letters", 409): "A redrive of this queue is running in the background. Nothing was changed.",
    ("resume_redrive", 409): "A redrive of this queue is running in the background. Nothing was changed.",
    ("purge_queue", 409): "The broker purges a queue at most once in 60 seconds. Nothing was removed." + _LATER,
    ("purge_dead_letters", 409): "The broker purges a queue at most once in 60 seconds. Nothing was removed." + _LATER,
    ("cancel_redrive", 409): "The job cannot be cancelled. Nothing was changed.",
    ("get_dead_letter", 422): "The search has ended before the dead letters did, or the broker cannot list them.",
    ("delete_dead_letter", 422): "The search has ended before the dead letters did, or the broker cannot list them. "
    "Nothing was removed.",
    ("redrive_dead_letter", 422): "The dead letter, or its edit, is no valid message, its search has ended before the "
    "dead letters did, or the broker does not support the operation. `errors` gives each defect with its pointer. The "
    "dead letter stays.",
    ("redrive_dead_letter", 504): "The broker did not confirm in time. The message may have been sent and the dead "
    "letter still be listed; none is lost.",
    ("livez", 200): "The process answers. It says nothing of brokers.",
    ("startupz", 200): "The gateway has started.",
    ("readyz", 200): "The gateway accepts traffic.",
    ("metrics", 200): "The metrics of all workers.",
    (
        "publish_message",
        409,
    ): "The first request with this idempotency key is still in progress. This request published nothing." + _LATER,
    (
        "publish_batch",
        408,
    ): "The rest of the upload did not arrive in time. Of an NDJSON upload, the entries before are "
    "published: `accepted` and `failed` count them.",
    ("publish_batch", 413): "The body, or the number of its entries, exceeds the limit. Of a JSON array, nothing was "
    "published. Of an NDJSON upload, the entries before are published: `accepted` and `failed` count them.",
    (
        "publish_batch",
        422,
    ): "The queue does not support the operation, or 10,000 entries of an NDJSON upload failed: those before are "
    "published, `accepted` and `failed` count them, and the rest was not read. A few invalid entries fail alone: see "
    "their results in 207.",
    (
        "publish_batch",
        503,
    ): "The broker does not answer, the storage is full, or the process is stopping. Nothing was published." + _LATER,
    ("publish_batch", 507): "All entries were processed, and `accepted` and `failed` count them, but the gateway could "
    "not write its temporary file: `results` has only those of the first entries. Do not send the accepted ones again.",
    ("validate_message", 422): "The body is JSON and no valid message: a publish would answer the same. With "
    "`mode=consume` the code is the reason for which the message would be dead-lettered.",
    ("list_dead_letters", 422): "The broker of this queue cannot list dead letters.",
    (
        "redrive_dead_letters",
        504,
    ): "The broker did not confirm in time. A dead letter may have been sent back and still be "
    "listed, so that another redrive sends it twice; none is lost.",
}


def meaning_for_caller(operation: str, method: str, status: int) -> str:
    """One or two sentences: what ``status`` means to the caller of ``operation``, and what it did not do."""
    kind = _KIND.get(operation, "change" if method != "get" and operation != "validate_message" else "read")
    text = _OF_OPERATION.get((operation, status)) or _OF_KIND.get((kind, status)) or _TEXTS.get(status)
    if text is None:
        raise KeyError(f"Say in app/babelgate/http/statuses.py what {status} of {operation} means to its caller.")
    return text.format(nothing=_NOTHING.get(kind, ""))
