from typing import Literal

CapabilitiesDeliveryCount = Literal['added', 'none', 'one_based', 'zero_based']

CAPABILITIES_DELIVERY_COUNT_VALUES: set[CapabilitiesDeliveryCount] = { 'added', 'none', 'one_based', 'zero_based',  }

def check_capabilities_delivery_count(value: str) -> CapabilitiesDeliveryCount:
    if value in CAPABILITIES_DELIVERY_COUNT_VALUES:
        return value
    raise TypeError(f"Unexpected value {value!r}. Expected one of {CAPABILITIES_DELIVERY_COUNT_VALUES!r}")
