from typing import Literal

PausePublishes = Literal['accept', 'refuse']

PAUSE_PUBLISHES_VALUES: set[PausePublishes] = { 'accept', 'refuse',  }

def check_pause_publishes(value: str) -> PausePublishes:
    if value in PAUSE_PUBLISHES_VALUES:
        return value
    raise TypeError(f"Unexpected value {value!r}. Expected one of {PAUSE_PUBLISHES_VALUES!r}")
