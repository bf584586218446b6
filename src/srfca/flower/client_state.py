"""What a client keeps between messages, in Flower's context: the next one may start a new process.

It keeps the rows that it received or trained last, the states of its optimizer, the coordinates
that it does not send, and its final model.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterable, Mapping
from typing import Any

from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict
from torch import Tensor

from srfca.engine.optimizer import OptimizerState
from srfca.engine.simulation import Simulation
from srfca.engine.trainer import OptimizerStates
from srfca.flower.records import pack, row_name, unpack
from srfca.flower.row_cache import RowCache

_ROWS, _OPTIMIZER, _PERSONAL = "srfca.rows", "srfca.optimizer", "srfca.personal"
_SECRET = "srfca.secret"
_MODEL, _RESIDUALS = "srfca.model", "srfca.residuals"
_RESIDUALS_KEPT = 2
"""Trainings whose residuals a client keeps."""


class StoredRows:
    """The rows that a client has: those that it keeps, and those of the present message.

    Args:
        state: The state in Flower's context.
        row_bytes: Bytes of a complete row.
        received: The rows of the message, by name.
    """

    def __init__(self, state: RecordDict, row_bytes: int, received: Mapping[str, Array]) -> None:
        self._state = state
        self._rows: dict[str, Array] = dict(state.array_records.get(_ROWS) or {}) | dict(received)
        order = _description(state, _ROWS)
        self._cache = RowCache(row_bytes, order or [])

    def __contains__(self, name: str) -> bool:
        return name in self._rows

    def __getitem__(self, name: str) -> Array:
        return self._rows[name]

    def keep(self, names: Iterable[str], trained: Tensor | None) -> None:
        """Store rows for later messages: those that a request named, and those just trained."""
        self._cache.add(names)
        for row in () if trained is None else trained:
            packed = pack(row)
            self._rows[row_name(packed)] = packed
            self._cache.add([row_name(packed)])
        rows = {name: self._rows[name] for name in self._cache.names}
        _store(self._state, _ROWS, rows, list(self._cache.names))


def secret_of(state: RecordDict) -> str:
    """Return what a private client draws its noise from; it is made at the first message.

    The same question is answered with the same noise as long as the state is kept.
    """
    if _SECRET not in state.config_records:
        state[_SECRET] = ConfigRecord({"secret": secrets.token_hex(32)})
    return str(state.config_records[_SECRET]["secret"])


def store_optimizer_states(state: RecordDict, simulation: Simulation) -> None:
    """Store the optimizer states of all trainings."""
    arrays: dict[str, Array] = {}
    trainings = []
    for number, ((seed, purpose), states) in enumerate(simulation.optimizer_states.items()):
        entries = []
        for (_, component), optimizer in states.items():
            for moment, tensor in optimizer.moments.items():
                arrays[f"{number}.{component}.{moment}"] = pack(tensor)
            moments = list(optimizer.moments)
            entries.append({"component": component, "steps": optimizer.steps, "moments": moments})
        trainings.append({"seed": seed, "purpose": purpose, "entries": entries})
    _store(state, _OPTIMIZER, arrays, trainings)


def restore_optimizer_states(state: RecordDict, simulation: Simulation) -> None:
    """Give a simulation the optimizer states that were stored."""
    arrays: Mapping[str, Array] = state.array_records.get(_OPTIMIZER) or {}
    states: OptimizerStates = {}
    for number, training in enumerate(_description(state, _OPTIMIZER) or []):
        entries = {}
        for entry in training["entries"]:
            moments = {
                moment: unpack(arrays[f"{number}.{entry['component']}.{moment}"])
                for moment in entry["moments"]
            }
            on_device = {name: moment.to(simulation.device) for name, moment in moments.items()}
            entries[0, int(entry["component"])] = OptimizerState(int(entry["steps"]), on_device)
        states[int(training["seed"]), str(training["purpose"])] = entries
    simulation.optimizer_states = states


def store_personal(state: RecordDict, simulation: Simulation) -> None:
    """Store the coordinates that the client keeps to itself, of all trainings."""
    client_id = simulation.client_ids[0]
    arrays: dict[str, Array] = {}
    trainings: list[dict[str, Any]] = []
    for (seed, purpose), values in simulation.personal.values.items():
        if client_id in values:
            arrays[str(len(trainings))] = pack(values[client_id])
            trainings.append({"seed": seed, "purpose": purpose})
    _store(state, _PERSONAL, arrays, trainings)


def restore_personal(state: RecordDict, simulation: Simulation) -> None:
    """Give a simulation the personal coordinates that were stored."""
    arrays: Mapping[str, Array] = state.array_records.get(_PERSONAL) or {}
    client_id = simulation.client_ids[0]
    simulation.personal.values = {
        (int(training["seed"]), str(training["purpose"])): {
            client_id: unpack(arrays[str(number)]).to(simulation.device)
        }
        for number, training in enumerate(_description(state, _PERSONAL) or [])
    }


def store_residuals(state: RecordDict, simulation: Simulation) -> None:
    """Store what the client has not sent yet of its updates, of the last trainings."""
    trainings = list(simulation.residuals.values.items())[-_RESIDUALS_KEPT:]
    simulation.residuals.values = dict(trainings)
    arrays: dict[str, Array] = {}
    description = []
    for number, ((seed, purpose), values) in enumerate(trainings):
        arrays |= {f"{number}.{place}": pack(residual) for (_, place), residual in values.items()}
        places = [place for _, place in values]
        description.append({"seed": seed, "purpose": purpose, "places": places})
    _store(state, _RESIDUALS, arrays, description)


def restore_residuals(state: RecordDict, simulation: Simulation) -> None:
    """Give a simulation what the client has not sent yet of its updates."""
    arrays: Mapping[str, Array] = state.array_records.get(_RESIDUALS) or {}
    client_id = simulation.client_ids[0]
    simulation.residuals.values = {
        (int(training["seed"]), str(training["purpose"])): {
            (client_id, int(place)): unpack(arrays[f"{number}.{place}"]).to(simulation.device)
            for place in training["places"]
        }
        for number, training in enumerate(_description(state, _RESIDUALS) or [])
    }


def store_final_model(state: RecordDict, row: Tensor) -> None:
    """Store the client's final model ``[P]``."""
    state[_MODEL] = ArrayRecord({"row": pack(row)})


def _store(state: RecordDict, key: str, arrays: Mapping[str, Array], description: object) -> None:
    state[key] = ArrayRecord(dict(arrays))
    state[f"{key}.description"] = ConfigRecord({"json": json.dumps(description)})


def _description(state: RecordDict, key: str) -> Any:
    """Return the description that was stored with arrays, None if nothing was."""
    record = state.config_records.get(f"{key}.description")
    return None if record is None else json.loads(str(record["json"]))
