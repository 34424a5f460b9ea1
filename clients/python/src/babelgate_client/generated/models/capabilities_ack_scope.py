from typing import Literal

CapabilitiesAckScope = Literal['anywhere', 'owner']

CAPABILITIES_ACK_SCOPE_VALUES: set[CapabilitiesAckScope] = { 'anywhere', 'owner',  }

def check_capabilities_ack_scope(value: str) -> CapabilitiesAckScope:
    if value in CAPABILITIES_ACK_SCOPE_VALUES:
        return value
    raise TypeError(f"Unexpected value {value!r}. Expected one of {CAPABILITIES_ACK_SCOPE_VALUES!r}")
