from typing import Literal

ListedQueueSource = Literal['broker', 'configured', 'process']

LISTED_QUEUE_SOURCE_VALUES: set[ListedQueueSource] = { 'broker', 'configured', 'process',  }

def check_listed_queue_source(value: str) -> ListedQueueSource:
    if value in LISTED_QUEUE_SOURCE_VALUES:
        return value
    raise TypeError(f"Unexpected value {value!r}. Expected one of {LISTED_QUEUE_SOURCE_VALUES!r}")
