from typing import Literal

MessageHistoryStatus = Literal['accepted', 'acked', 'dead_lettered', 'delivered', 'dropped', 'redriven', 'waiting']

MESSAGE_HISTORY_STATUS_VALUES: set[MessageHistoryStatus] = { 'accepted', 'acked', 'dead_lettered', 'delivered', 'dropped', 'redriven', 'waiting',  }

def check_message_history_status(value: str) -> MessageHistoryStatus:
    if value in MESSAGE_HISTORY_STATUS_VALUES:
        return value
    raise TypeError(f"Unexpected value {value!r}. Expected one of {MESSAGE_HISTORY_STATUS_VALUES!r}")
