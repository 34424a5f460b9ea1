from typing import Literal

EventEvent = Literal['accepted', 'acked', 'dead_lettered', 'delivered', 'dropped', 'lease_expired', 'nacked', 'poison', 'redriven', 'rejected']

EVENT_EVENT_VALUES: set[EventEvent] = { 'accepted', 'acked', 'dead_lettered', 'delivered', 'dropped', 'lease_expired', 'nacked', 'poison', 'redriven', 'rejected',  }

def check_event_event(value: str) -> EventEvent:
    if value in EVENT_EVENT_VALUES:
        return value
    raise TypeError(f"Unexpected value {value!r}. Expected one of {EVENT_EVENT_VALUES!r}")
