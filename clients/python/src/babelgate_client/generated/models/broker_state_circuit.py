from typing import Literal

BrokerStateCircuit = Literal['closed', 'open']

BROKER_STATE_CIRCUIT_VALUES: set[BrokerStateCircuit] = { 'closed', 'open',  }

def check_broker_state_circuit(value: str) -> BrokerStateCircuit:
    if value in BROKER_STATE_CIRCUIT_VALUES:
        return value
    raise TypeError(f"Unexpected value {value!r}. Expected one of {BROKER_STATE_CIRCUIT_VALUES!r}")
