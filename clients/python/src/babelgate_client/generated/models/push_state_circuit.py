from typing import Literal

PushStateCircuit = Literal['closed', 'half_open', 'open']

PUSH_STATE_CIRCUIT_VALUES: set[PushStateCircuit] = { 'closed', 'half_open', 'open',  }

def check_push_state_circuit(value: str) -> PushStateCircuit:
    if value in PUSH_STATE_CIRCUIT_VALUES:
        return value
    raise TypeError(f"Unexpected value {value!r}. Expected one of {PUSH_STATE_CIRCUIT_VALUES!r}")
