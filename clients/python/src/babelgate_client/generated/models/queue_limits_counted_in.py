from typing import Literal

QueueLimitsCountedIn = Literal['process', 'replicas']

QUEUE_LIMITS_COUNTED_IN_VALUES: set[QueueLimitsCountedIn] = { 'process', 'replicas',  }

def check_queue_limits_counted_in(value: str) -> QueueLimitsCountedIn:
    if value in QUEUE_LIMITS_COUNTED_IN_VALUES:
        return value
    raise TypeError(f"Unexpected value {value!r}. Expected one of {QUEUE_LIMITS_COUNTED_IN_VALUES!r}")
