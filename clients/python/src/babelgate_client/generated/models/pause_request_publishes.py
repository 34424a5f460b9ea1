from typing import Literal

PauseRequestPublishes = Literal['accept', 'refuse']

PAUSE_REQUEST_PUBLISHES_VALUES: set[PauseRequestPublishes] = { 'accept', 'refuse',  }

def check_pause_request_publishes(value: str) -> PauseRequestPublishes:
    if value in PAUSE_REQUEST_PUBLISHES_VALUES:
        return value
    raise TypeError(f"Unexpected value {value!r}. Expected one of {PAUSE_REQUEST_PUBLISHES_VALUES!r}")
