from typing import Literal

CapabilitiesOrdering = Literal['fifo', 'key', 'none']

CAPABILITIES_ORDERING_VALUES: set[CapabilitiesOrdering] = { 'fifo', 'key', 'none',  }

def check_capabilities_ordering(value: str) -> CapabilitiesOrdering:
    if value in CAPABILITIES_ORDERING_VALUES:
        return value
    raise TypeError(f"Unexpected value {value!r}. Expected one of {CAPABILITIES_ORDERING_VALUES!r}")
