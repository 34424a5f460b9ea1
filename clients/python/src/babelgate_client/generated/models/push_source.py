from typing import Literal

PushSource = Literal['api', 'configuration']

PUSH_SOURCE_VALUES: set[PushSource] = { 'api', 'configuration',  }

def check_push_source(value: str) -> PushSource:
    if value in PUSH_SOURCE_VALUES:
        return value
    raise TypeError(f"Unexpected value {value!r}. Expected one of {PUSH_SOURCE_VALUES!r}")
