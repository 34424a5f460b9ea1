from typing import Literal

Right = Literal['listen', 'manage', 'observe', 'send']

RIGHT_VALUES: set[Right] = { 'listen', 'manage', 'observe', 'send',  }

def check_right(value: str) -> Right:
    if value in RIGHT_VALUES:
        return value
    raise TypeError(f"Unexpected value {value!r}. Expected one of {RIGHT_VALUES!r}")
