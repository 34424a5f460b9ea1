from typing import Literal

ListEventsEventType0 = Literal['accepted', 'acked', 'dead_lettered', 'delivered', 'dropped', 'lease_expired', 'nacked', 'poison', 'redriven', 'rejected']

LIST_EVENTS_EVENT_TYPE_0_VALUES: set[ListEventsEventType0] = { 'accepted', 'acked', 'dead_lettered', 'delivered', 'dropped', 'lease_expired', 'nacked', 'poison', 'redriven', 'rejected',  }

def check_list_events_event_type_0(value: str) -> ListEventsEventType0:
    if value in LIST_EVENTS_EVENT_TYPE_0_VALUES:
        return value
    raise TypeError(f"Unexpected value {value!r}. Expected one of {LIST_EVENTS_EVENT_TYPE_0_VALUES!r}")
