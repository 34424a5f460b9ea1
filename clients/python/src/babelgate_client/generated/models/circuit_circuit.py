from typing import Literal

CircuitCircuit = Literal['closed', 'open']

CIRCUIT_CIRCUIT_VALUES: set[CircuitCircuit] = { 'closed', 'open',  }

def check_circuit_circuit(value: str) -> CircuitCircuit:
    if value in CIRCUIT_CIRCUIT_VALUES:
        return value
    raise TypeError(f"Unexpected value {value!r}. Expected one of {CIRCUIT_CIRCUIT_VALUES!r}")
