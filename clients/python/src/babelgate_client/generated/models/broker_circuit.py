from typing import Literal

BrokerCircuit = Literal['closed', 'open']

BROKER_CIRCUIT_VALUES: set[BrokerCircuit] = { 'closed', 'open',  }

def check_broker_circuit(value: str) -> BrokerCircuit:
    if value in BROKER_CIRCUIT_VALUES:
        return value
    raise TypeError(f"Unexpected value {value!r}. Expected one of {BROKER_CIRCUIT_VALUES!r}")
