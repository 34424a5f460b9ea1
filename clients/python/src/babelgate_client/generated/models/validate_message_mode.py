from typing import Literal

ValidateMessageMode = Literal['consume', 'publish']

VALIDATE_MESSAGE_MODE_VALUES: set[ValidateMessageMode] = { 'consume', 'publish',  }

def check_validate_message_mode(value: str) -> ValidateMessageMode:
    if value in VALIDATE_MESSAGE_MODE_VALUES:
        return value
    raise TypeError(f"Unexpected value {value!r}. Expected one of {VALIDATE_MESSAGE_MODE_VALUES!r}")
