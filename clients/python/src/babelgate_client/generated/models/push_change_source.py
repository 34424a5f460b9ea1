from typing import Literal

PushChangeSource = Literal['api', 'configuration']

PUSH_CHANGE_SOURCE_VALUES: set[PushChangeSource] = { 'api', 'configuration',  }

def check_push_change_source(value: str) -> PushChangeSource:
    if value in PUSH_CHANGE_SOURCE_VALUES:
        return value
    raise TypeError(f"Unexpected value {value!r}. Expected one of {PUSH_CHANGE_SOURCE_VALUES!r}")
