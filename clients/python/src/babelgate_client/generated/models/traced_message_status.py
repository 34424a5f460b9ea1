from typing import Literal

TracedMessageStatus = Literal['accepted', 'acked', 'dead_lettered', 'delivered', 'dropped', 'redriven', 'waiting']

TRACED_MESSAGE_STATUS_VALUES: set[TracedMessageStatus] = { 'accepted', 'acked', 'dead_lettered', 'delivered', 'dropped', 'redriven', 'waiting',  }

def check_traced_message_status(value: str) -> TracedMessageStatus:
    if value in TRACED_MESSAGE_STATUS_VALUES:
        return value
    raise TypeError(f"Unexpected value {value!r}. Expected one of {TRACED_MESSAGE_STATUS_VALUES!r}")
