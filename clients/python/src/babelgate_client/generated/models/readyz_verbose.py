from typing import Literal

ReadyzVerbose = Literal['', '0', '1', 'false', 'true']

READYZ_VERBOSE_VALUES: set[ReadyzVerbose] = { '', '0', '1', 'false', 'true',  }

def check_readyz_verbose(value: str) -> ReadyzVerbose:
    if value in READYZ_VERBOSE_VALUES:
        return value
    raise TypeError(f"Unexpected value {value!r}. Expected one of {READYZ_VERBOSE_VALUES!r}")
