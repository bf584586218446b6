"""Every method on Flower, in one process: the same as in a simulation, and what may go wrong."""

from __future__ import annotations

import logging
import tomllib
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from flwr.app import Array, Context, Error, Message, RecordDict
from flwr.common.constant import ErrorCode
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from torch import Tensor, nn
from typer.testing import CliRunner

from srfca import SRFCA, ClientData, InputError, Partition, Simulation, Work, methods, models
from srfca.apps import new_app
from srfca.cli import app
from srfca.federation.base import Absence, Mixture
from srfca.flower import FlowerFederation, client_app, server_app
from srfca.flower.records import (
    ARRAYS,
    RAW,
    ROWS,
    VALUES,
    NonsenseError,
    arrays_of,
    content,
    name_of,
    pack,
    size_of,
    unpack,
)
from srfca.flower.serve import place, refreshed
from srfca.flower.server import costs
from srfca.flower.settings import Settings, configured
from srfca.flower.shelf import Shelf
from srfca.methods import IFCA, Global, Local, Method, Oracle
from srfca.random import Key
from tests import examples
from tests.flower_grid import LocalGrid

M = 8
DATA = examples.mixed_labels([1.0, 0.0] * (M // 2), n=40)
MODEL = models.linear(6, 4)
WORK = Work(steps=12, local_steps=4, batch_size=10, lr=0.5)
SR_FCA = SRFCA(work=WORK, threshold="45%", merge_threshold="auto", refine_steps=1)


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Small work on many threads is slow where others work too."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def own_data(context: Context) -> ClientData:
    return DATA.select(int(context.node_config["partition-id"]))


def make_app(**options: Any) -> Any:
    given: dict[str, Any] = {"model": MODEL, "data": own_data, "device": "cpu", **options}
    return client_app(**given)


def make_grid(partitions: Any = range(M), **options: Any) -> LocalGrid:
    return LocalGrid(make_app(**options), partitions)


def make(grid: LocalGrid | None = None, **options: Any) -> FlowerFederation:
    return FlowerFederation(grid or make_grid(), MODEL, **{"clients": M} | options)


def simulation() -> Simulation:
    return Simulation(DATA, MODEL, device="cpu")


METHODS: list[Method] = [
    SR_FCA,
    SRFCA(work=WORK, threshold=1.2, all_pairs=0, distance="one_sided_loss", resample=True),
    SRFCA(work=WORK, distance="l2", aggregate="gradients", final_steps=4, personal_steps=10),
    Oracle(work=WORK, truth=DATA.truth),
    Local(work=WORK),
    Global(work=WORK, participation=0.5),
    methods.FedProx(work=WORK),
    methods.RobustGlobal(work=WORK),
    IFCA(k=2, start="clients", work=WORK),
    IFCA(k=2, work=WORK, average="gradients", start="distant"),
    methods.HypCluster(k=2, work=WORK),
    methods.FeSEM(k=2, work=WORK),
    methods.OneShotKMeans(k=2, work=WORK),
    methods.OneShotIFCA(work=WORK),
    methods.CFL(work=WORK),
    methods.Hierarchical(work=WORK),
    methods.FedGroup(k=2, work=WORK),
    methods.PACFL(work=WORK, rank=2, threshold=40.0),
    methods.FedSoft(k=2, work=WORK),
    methods.FedEM(k=2, work=WORK),
    methods.Ditto(work=WORK),
    methods.MOCHA(work=WORK),
]


@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.name)
def test_every_method_is_the_same_as_in_a_simulation(method: Method) -> None:
    federation, alone = make(), simulation()
    found, expected = method.fit(federation, seed=1), method.fit(alone, seed=1)
    assert found.partition == expected.partition
    assert [stage.labels for stage in found.history] == [s.labels for s in expected.history]
    for ours, theirs in zip(found.history, expected.history, strict=True):
        assert ours.loss == pytest.approx(theirs.loss, abs=1e-5)
        assert ours.accuracy == pytest.approx(theirs.accuracy, abs=1e-9)
        assert ours.budget == theirs.budget
    for name in ("models", "own", "mixture", "tuned", "reach"):
        one, other = getattr(found, name), getattr(expected, name)
        assert (one is None) == (other is None)
        assert one is None or torch.allclose(one, other, atol=1e-5), name
    there, here = found.scores(federation), expected.scores(alone)
    assert torch.allclose(there.loss, here.loss, atol=1e-5)
    assert there.accuracy is not None
    assert here.accuracy is not None
    assert torch.equal(there.accuracy, here.accuracy)
    assert torch.equal(there.n, here.n)
    assert not federation.wire.absences


class Afresh:
    """A ClientApp that is loaded anew for every message, as where each has its own process."""

    def __init__(self, **options: Any) -> None:
        self.options = options

    def __call__(self, message: Message, context: Context) -> Message:
        answer: Message = make_app(**self.options)(message, context)
        return answer


@pytest.mark.parametrize("optimizer", [{"momentum": 0.9}, {"optimizer": "adam", "lr": 0.05}])
def test_what_optimisers_keep_outlives_a_process(optimizer: dict[str, Any]) -> None:
    work = Work(**{"steps": 9, "local_steps": 3, "lr": 0.1, "keep_state": True} | optimizer)
    grid = LocalGrid(Afresh(), range(M))
    for method in (Global(work=work, personal_steps=10), methods.FedEM(k=2, work=work)):
        found = method.fit(make(grid), seed=2)
        expected = method.fit(simulation(), seed=2)
        assert torch.allclose(found.models, expected.models, atol=1e-5)
    without = Global(work=Work(**{**vars(work), "keep_state": False})).fit(make(grid), seed=2)
    expected = Global(work=work).fit(simulation(), seed=2)
    assert not torch.allclose(without.models, expected.models, atol=1e-5)


def test_a_question_is_one_message_and_a_model_travels_once() -> None:
    grid = make_grid()
    federation = make(grid)
    assert federation.wire.messages == M
    result = SR_FCA.fit(federation, seed=1)
    kinds = [kind for _, kind in grid.log[M:]]
    rounds = 1 + WORK.rounds  # ONE_SHOT, TRIMMED_MEAN_GD
    assert kinds.count("train.fit") == M * rounds
    assert kinds.count("query.losses") == 2 * M  # all pairs; all cluster models, both splits
    assert len(kinds) == M * (rounds + 2)
    sent = [len(arrays_of(message.content, ROWS)) for message in grid.sent.values()]
    assert sum(sent) == result.budget.models_down
    wire = sum(stage.notes["wire"]["messages"] for stage in result.history if "wire" in stage.notes)
    assert wire == federation.wire.messages - M


def test_losses_are_asked_for_once_and_forgotten_when_told() -> None:
    federation, alone = make(), simulation()
    rows = torch.stack([federation.initial(seed) for seed in range(3)])
    for split in ("train", "validation", "test"):
        found = federation.losses(rows, [1, 5], split)
        expected = alone.losses(rows, [1, 5], split)
        assert torch.allclose(found, expected, atol=1e-6)
    messages = federation.wire.messages
    federation.losses(rows[:2], [5])
    federation.scores(rows[:2], [1, 5], "validation")
    assert federation.wire.messages == messages
    federation.losses(rows, [4, 5])
    assert federation.wire.messages == messages + 1
    federation.forget_losses()
    federation.losses(rows, [4, 5])
    assert federation.wire.messages == messages + 3
    trained, theirs = (
        federation.scores(rows[:1], [2], "train"),
        alone.scores(rows[:1], [2], "train"),
    )
    assert trained.accuracy is not None
    assert torch.equal(trained.accuracy, torch.as_tensor(theirs.accuracy))


def test_a_client_that_has_lost_its_models_is_sent_them_again() -> None:
    grid = make_grid()
    federation, alone = make(grid), simulation()
    rows = torch.stack([federation.initial(seed) for seed in range(M)])
    federation.losses(rows, range(M))
    for context in grid.contexts.values():
        context.state = RecordDict()
    found = federation.fit(rows, range(M), WORK, Key(0, "x"))
    assert torch.allclose(found, alone.fit(rows, range(M), WORK, Key(0, "x")), atol=1e-5)
    assert not federation.wire.absences
    assert grid.log[-2 * M :] == [(p, "train.fit") for p in range(M)] * 2


@pytest.mark.parametrize("times", [1, 2])
def test_a_client_whose_process_ends_is_asked_once_more(times: int) -> None:
    grid = make_grid()
    federation, alone = make(grid), simulation()
    asked = []

    def crashes(partition: int, message: Message) -> object:
        if partition != 3:
            return None
        asked.append(partition)
        crash = Error(ErrorCode.CLIENT_APP_CRASHED, "stopped responding")
        return Message(crash, reply_to=message) if len(asked) <= times else None

    grid.fault = crashes
    rows = torch.stack([federation.initial(seed) for seed in range(M)])
    found = federation.fit(rows, range(M), WORK, Key(0, "x"))
    expected = alone.fit(rows, range(M), WORK, Key(0, "x"))
    assert asked == [3, 3]
    if times == 2:
        expected[3] = torch.nan
        assert federation.wire.absences == (
            Absence("3", "fit", f"error {ErrorCode.CLIENT_APP_CRASHED}: stopped responding"),
        )
    else:
        assert not federation.wire.absences
    assert torch.allclose(found, expected, atol=1e-5, equal_nan=True)


def silent_in(kind: str, *partitions: int) -> Callable[[int, Message], object]:
    """No answer to one kind of question."""

    def fault(partition: int, message: Message) -> object:
        return ... if partition in partitions and message.metadata.message_type == kind else None

    return fault


def raising_in(kind: str, *partitions: int) -> Callable[[int, Message], object]:
    def fault(partition: int, message: Message) -> object:
        wrong = partition in partitions and message.metadata.message_type == kind
        return RuntimeError("out of luck") if wrong else None

    return fault


def right(labels: np.ndarray, which: list[int]) -> bool:
    assert DATA.truth is not None
    return Partition(labels[which]) == Partition(DATA.truth.labels[which])


@pytest.mark.parametrize("distance", ["cross_loss", "one_sided_loss", "l2"])
def test_a_client_that_raises_in_one_shot_is_placed_all_the_same(distance: str) -> None:
    grid = make_grid()
    federation = make(grid)
    asked = []

    def once(partition: int, message: Message) -> object:
        if partition != 3 or message.metadata.message_type != "train.fit":
            return None
        asked.append(partition)
        return RuntimeError("out of luck") if len(asked) == 1 else None

    grid.fault = once
    result = replace(SR_FCA, distance=distance).fit(federation, seed=1)
    assert result.partition == DATA.truth
    assert (result.history[0].labels[3] == -1) == (distance != "cross_loss")
    assert result.history[0].notes["absent"] == [
        {"client": "3", "asked": "fit", "why": "error 2: out of luck"}
    ]
    assert all("absent" not in stage.notes for stage in result.history[1:])


@pytest.mark.parametrize("kind", ["train.fit", "query.losses"])
@pytest.mark.parametrize("distance", ["cross_loss", "one_sided_loss", "l2"])
@pytest.mark.parametrize("all_pairs", [0, 1000])
def test_a_client_that_never_answers_a_question_leaves_the_others_alone(
    kind: str, distance: str, all_pairs: int
) -> None:
    grid = make_grid()
    federation = make(grid)
    grid.fault = raising_in(kind, 3)
    threshold: dict[str, Any] = {"threshold": "45%", "merge_threshold": "auto"}
    method = SRFCA(work=WORK, distance=distance, all_pairs=all_pairs, **threshold, refine_steps=1)
    result = method.fit(federation, seed=1)
    rest = [client for client in range(M) if client != 3]
    assert right(result.labels, rest)
    assert result.models.isfinite().all()
    scores = result.scores(federation)
    assert scores.loss[rest].isfinite().all()
    names = {each["client"] for stage in result.history for each in stage.notes.get("absent", [])}
    assert names == {"3"}


def test_a_client_that_leaves_for_good_keeps_its_place_or_has_none() -> None:
    grid = make_grid()
    federation = make(grid)
    grid.leave(3)
    result = SR_FCA.fit(federation, seed=1)
    assert result.labels[3] == -1
    assert result.client_models[3].isnan().all()
    assert right(result.labels, [0, 1, 2, 4, 5, 6, 7])
    assert result.scores(federation).loss.isnan().tolist() == [c == 3 for c in range(M)]
    assert {a.why for a in federation.wire.absences} == {"not connected"}

    grid = make_grid()
    federation = make(grid)

    def leaves(partition: int, message: Message) -> object:
        if len(grid.log) > 4 * M:
            grid.leave(3)
        return None

    grid.fault = leaves
    result = SR_FCA.fit(federation, seed=1)
    assert result.partition == DATA.truth
    assert federation.wire.absences


@pytest.mark.parametrize(
    "method",
    [
        IFCA(k=2, start="clients", work=WORK),
        IFCA(k=2, start="clients", work=WORK, restarts=2),
        methods.OneShotKMeans(k=2, work=WORK),
        methods.OneShotIFCA(work=WORK),
        Global(work=WORK, personal_steps=5),
        Oracle(work=WORK, truth=DATA.truth),
        Local(work=WORK),
        methods.FedEM(k=2, work=WORK),
        methods.FedSoft(k=2, work=WORK),
        methods.Ditto(work=WORK),
        methods.MOCHA(work=WORK),
    ],
    ids=lambda method: method.name,
)
def test_methods_go_on_without_a_client_that_leaves(method: Method) -> None:
    grid = make_grid()
    federation = make(grid)
    alone = method.fit(simulation(), seed=1)

    def leaves(partition: int, message: Message) -> object:
        if len(grid.log) > 2 * M:
            grid.leave(6)
        return None

    grid.fault = leaves
    result = method.fit(federation, seed=1)
    assert federation.wire.absences
    rest = [client for client in range(M) if client != 6]
    assert result.client_models[rest].isfinite().all()
    scores, without = result.scores(federation).loss[rest], alone.scores(simulation()).loss[rest]
    assert scores.isfinite().all()
    assert float(scores.mean()) < 1.5 * float(without.mean())


@pytest.mark.parametrize(
    "method",
    [
        methods.CFL(work=WORK),
        methods.Hierarchical(work=WORK),
        methods.FedGroup(k=2, work=WORK),
        methods.FeSEM(k=2, work=WORK),
        methods.PACFL(work=WORK, rank=2, threshold=40.0),
        IFCA(k=3, start="clients", work=WORK),
    ],
    ids=lambda method: method.name,
)
def test_a_method_goes_on_without_a_client_that_has_left(method: Method) -> None:
    grid = make_grid()
    federation = make(grid)
    grid.leave(6)
    result = method.fit(federation)
    assert result.models.isfinite().all()
    assert [int(client) for client in np.flatnonzero(result.labels < 0)] in ([6], [])
    assert {absence.client for absence in federation.wire.absences} == {"6"}


def wrong_answers() -> dict[str, tuple[Callable[[Message, Message], Message], str]]:
    """Answers to ``fit`` that are not what was asked for, and why not."""

    def changed(change: Callable[[RecordDict], None]) -> Callable[[Message, Message], Message]:
        def wrong(message: Message, answer: Message) -> Message:
            change(answer.content)
            return answer

        return wrong

    def array(make: Callable[[Array], Array]) -> Callable[[Message, Message], Message]:
        def change(records: RecordDict) -> None:
            records.array_records[ARRAYS]["rows"] = make(records.array_records[ARRAYS]["rows"])

        return changed(change)

    def tensor(make: Callable[[Tensor], Tensor]) -> Callable[[Message, Message], Message]:
        return array(lambda old: pack(make(unpack(old, tuple(old.shape), torch.float32).clone())))

    def infinite(rows: Tensor) -> Tensor:
        rows[0, 1] = torch.inf
        return rows

    def nameless(records: RecordDict) -> None:
        del records[VALUES]

    def another(records: RecordDict) -> None:
        records.config_records[VALUES]["client"] = "0"

    def more(records: RecordDict) -> None:
        records.array_records[ARRAYS]["more"] = pack(torch.ones(1))

    return {
        "shape": (tensor(lambda rows: rows[:, 1:]), r"shape \(1, 27\), where \(1, 28\)"),
        "dtype": (tensor(lambda rows: rows.double()), "float64, where float32"),
        "NaN": (tensor(lambda rows: rows * torch.nan), "infinite or NaN"),
        "infinity": (tensor(infinite), "infinite or NaN"),
        "pickle": (
            array(lambda old: Array(old.dtype, old.shape, "pickle", old.data)),
            "'pickle', where",
        ),
        "short": (
            array(lambda old: Array(old.dtype, old.shape, RAW, old.data[:-4])),
            "108 bytes, where 112",
        ),
        "no values": (changed(nameless), "without values"),
        "another's": (changed(another), "answers as client '0'"),
        "more": (changed(more), r"sends \['more', 'rows'\]"),
        "nothing": (lambda message, answer: Message(RecordDict(), reply_to=message), "values"),
    }


@pytest.mark.parametrize("what", wrong_answers())
def test_a_wrong_answer_is_refused_named_and_counted(what: str) -> None:
    wrong, why = wrong_answers()[what]
    grid = make_grid()
    federation = make(grid)

    def fault(partition: int, message: Message) -> object:
        if partition != 5 or message.metadata.message_type != "train.fit":
            return None
        node = next(n for n, c in grid.contexts.items() if c.node_config["partition-id"] == 5)
        return wrong(message, grid.app(message, grid.contexts[node]))

    grid.fault = fault
    w0 = federation.initial(0).expand(M, -1)
    rows = federation.fit(w0, range(M), WORK, Key(0, "x"))
    assert rows.isnan().any(1).tolist() == [client == 5 for client in range(M)]
    (absence,) = federation.wire.absences
    assert (absence.client, absence.asked) == ("5", "fit")
    with pytest.raises(AssertionError, match=why):
        raise AssertionError(absence.why)


def test_a_client_that_is_late_is_not_waited_for_again_until_it_answers() -> None:
    grid = make_grid()
    federation = make(grid, timeout=0.3)
    w0 = federation.initial(0).expand(M, -1)
    grid.fault = silent_in("train.fit", 2)
    federation.fit(w0, range(M), WORK, Key(0, "x"))
    assert [a.why for a in federation.wire.absences] == ["no answer in 0.3 s"]
    grid.fault = lambda partition, message: None
    before = len(grid.log)
    federation.fit(w0, range(M), WORK, Key(0, "x", 1))
    assert len(grid.log) - before == M - 1
    assert federation.wire.absences[-1].why == "late with an earlier answer"
    (owed,) = federation.post._owed
    grid._replies[owed] = Message(content({}), reply_to=grid.sent[owed])
    rows = federation.fit(w0, range(M), WORK, Key(0, "x", 2))
    assert rows.isfinite().all()


def test_a_client_that_comes_back_is_known_by_its_name() -> None:
    grid = make_grid()
    federation = make(grid)
    w0 = federation.initial(0).expand(M, -1)
    federation.fit(w0, range(M), WORK, Key(0, "x"))
    grid.leave(4)
    assert federation.fit(w0, range(M), WORK, Key(0, "x", 1))[4].isnan().all()
    node = grid.join(4)
    rows = federation.fit(w0, range(M), WORK, Key(0, "x", 2))
    assert federation.post.members["4"].node == node
    assert rows.isfinite().all()
    assert torch.allclose(rows, simulation().fit(w0, range(M), WORK, Key(0, "x", 2)), atol=1e-5)


def test_a_client_that_starts_again_takes_its_place_when_the_old_node_is_gone() -> None:
    """Flower finds out only after some heartbeats that a node was killed."""
    grid = make_grid()
    federation = make(grid)
    w0 = federation.initial(0).expand(M, -1)
    old = federation.post.members["4"].node
    new = grid.join(4)
    for _ in range(5):
        federation.post.look()
    assert federation.post.members["4"].node == old
    hellos = len(grid.log)
    del grid.contexts[old]
    rows = federation.fit(w0, range(M), WORK, Key(0, "x"))
    assert federation.post.members["4"].node == new
    assert rows.isfinite().all()
    assert len(grid.log) == hellos + M


def test_below_the_least_number_of_clients_a_run_pauses(caplog: pytest.LogCaptureFixture) -> None:
    grid = make_grid()
    federation = make(grid, min_clients=7)
    for partition in (1, 2):
        grid.leave(partition)
    looks = 0
    look = grid.get_node_ids

    def slowly() -> list[int]:
        nonlocal looks
        looks += 1
        if looks == 4:
            grid.join(2)
        return look()

    grid.get_node_ids = slowly  # type: ignore[method-assign]
    logger = logging.getLogger("flwr")
    logger.addHandler(caplog.handler)
    try:
        rows = federation.fit(federation.initial(0).expand(M, -1), range(M), WORK, Key(0, "x"))
    finally:
        logger.removeHandler(caplog.handler)
    assert rows.isnan().any(1).tolist() == [client == 1 for client in range(M)]
    assert "waiting: 6 of at least 7 clients; not here, or late: 1, 2" in caplog.text
    assert "going on with 7 clients" in caplog.text


def test_who_has_another_model_or_another_s_name_is_not_taken_in(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def app(message: Message, context: Context) -> Message:
        partition = int(context.node_config["partition-id"])
        other = models.linear(6, 3) if partition == 8 else MODEL
        held = DATA.select(partition % M)
        answer: Message = client_app(model=other, data=lambda context: held, device="cpu")(
            message, context
        )
        return answer

    caplog.set_level(logging.WARNING, "flwr")
    logger = logging.getLogger("flwr")
    logger.addHandler(caplog.handler)
    try:
        federation = FlowerFederation(
            LocalGrid(app, range(M + 2)),
            MODEL,
            clients=M,
        )
    finally:
        logger.removeHandler(caplog.handler)
    assert federation.clients == tuple(str(client) for client in range(M))
    assert "says it is '1', but so does another node" in caplog.text
    assert federation.newcomers() == []


def test_newcomers_are_placed_and_given_their_model() -> None:
    received: dict[str, nn.Module] = {}

    def receive(module: nn.Module, context: Context) -> None:
        received[str(context.node_config["partition-id"])] = module

    grid = LocalGrid(make_app(receive=receive), range(M - 2))
    federation = make(grid, clients=M - 2)
    result = SR_FCA.fit(federation, seed=1)
    assert federation.newcomers() == []
    grid.join(6)
    grid.join(7)
    federation.newcomers()
    assert federation.newcomers() == ["6", "7"]
    grown = place(federation, result, ["6", "7"])
    assert grown.partition == DATA.truth
    federation.keep(grown.client_models)
    assert sorted(received) == [str(client) for client in range(M)]
    x = torch.randn(5, 6)
    alone = simulation()
    for client in range(M):
        expected = alone.module(grown.client_models[client])(x)
        assert torch.equal(received[str(client)](x), expected)
    with pytest.raises(InputError, match="is in the federation already"):
        federation.admit(["6"])
    with pytest.raises(InputError, match="has not come"):
        federation.admit(["nobody"])


def test_a_refresh_follows_clients_whose_data_change() -> None:
    swapped: dict[int, int] = {}

    def moving(context: Context) -> ClientData:
        partition = int(context.node_config["partition-id"])
        x, y = DATA.train.of(swapped.get(partition, partition))
        return ClientData.from_arrays({str(partition): (x, y)}, {str(partition): (x, y)})

    grid = LocalGrid(Afresh(data=moving), range(M))
    federation = make(grid)
    work = Work(steps=60, local_steps=20, batch_size=10, lr=0.5)
    result = SRFCA(work=work, threshold="45%", merge_threshold="auto").fit(federation, seed=1)
    assert result.partition == DATA.truth
    swapped |= {0: 1, 1: 0}
    stale = result.scores(federation).loss.mean()
    again = refreshed(federation, result, work, rounds=2, number=0)
    assert DATA.truth is not None
    truth = DATA.truth.labels.copy()
    truth[[0, 1]] = truth[[1, 0]]
    assert again.partition == Partition(truth)
    assert again.history[-1].name == "REFRESH 1"
    assert again.history[-1].notes["moved"] == 2
    assert again.scores(federation).loss.mean() < stale
    assert not torch.equal(again.models, result.models)


def run_app(grid: LocalGrid, config: dict[str, Any], **options: Any) -> None:
    context = Context(
        run_id=1, node_id=0, node_config={}, state=RecordDict(),
        run_config={f"srfca.{key}": value for key, value in config.items()},
    )  # fmt: skip
    server_app(model=MODEL, method=SR_FCA, **options)(grid, context)


def test_a_server_app_runs_saves_and_serves(tmp_path: Path) -> None:
    done = []
    grid = make_grid(receive=lambda module, context: None)
    config: dict[str, Any] = {"clients": M - 1, "seed": 1, "out": str(tmp_path), "look": 0.01}
    config |= {"serve": True, "serve-for": 0.5, "refresh": 0.2, "refresh-rounds": 1}
    grid.leave(7)

    def joins(partition: int, message: Message) -> object:
        if message.metadata.message_type == "query.keep" and len(grid.contexts) < M:
            grid.join(7)
        return None

    grid.fault = joins
    run_app(grid, config, done=lambda result, federation: done.append(result))
    (result,) = done
    assert right(result.labels, list(range(M - 1)))
    served = methods.Result.load(tmp_path)
    assert served.clients == tuple(map(str, range(M)))
    assert served.partition == DATA.truth
    assert [stage.name for stage in served.history][-1].startswith("REFRESH")


def test_who_comes_too_late_is_placed_at_the_end() -> None:
    grid = make_grid()
    grid.leave(7)

    def joins(partition: int, message: Message) -> object:
        if len(grid.log) == 3 * M:
            grid.join(7)
        return None

    grid.fault = joins
    done: list[tuple[methods.Result, FlowerFederation]] = []
    run_app(grid, {"clients": M - 1, "seed": 1}, done=lambda *both: done.append(both))
    [(result, federation)] = done
    assert result.clients == tuple(map(str, range(M)))
    assert result.partition == DATA.truth
    lines = costs(result, federation)
    assert lines[0].startswith(f"  ONE_SHOT: {2 * (M - 1)} messages, ")
    assert lines[-1].startswith(f"all: {federation.wire.messages} messages, ")
    assert lines[-1].endswith(", 0 not answered")


def test_a_killed_server_goes_on_with_the_clients_it_had(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All of them, however long it takes them to say who they are."""
    monkeypatch.setattr("srfca.flower.federation.PATIENCE", 0.0)
    expected = SR_FCA.fit(simulation(), seed=1)
    for after in (M + 3, 3 * M, 4 * M + 2):
        grid = make_grid()

        def killed(
            partition: int, message: Message, grid: Any = grid, after: int = after
        ) -> object:
            if len(grid.log) > after:
                raise KeyboardInterrupt
            return None

        grid.fault = killed
        folder = tmp_path / str(after)
        config = {"clients": M, "seed": 1, "out": str(folder)}
        with pytest.raises(KeyboardInterrupt):
            run_app(grid, config)
        assert not (folder / "result.json").exists()
        again = make_grid(reversed(range(M)))
        again.one_by_one = True
        run_app(again, config)
        found = methods.Result.load(folder)
        assert found.clients == expected.clients
        assert found.partition == expected.partition
        assert torch.allclose(found.models, expected.models, atol=1e-5)
        assert not any("absent" in stage.notes for stage in found.history)


def test_a_killed_server_goes_on_without_a_client_that_has_left_since(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("srfca.flower.federation.PATIENCE", 0.3)
    grid = make_grid()

    def killed(partition: int, message: Message) -> object:
        if len(grid.log) > 4 * M:
            raise KeyboardInterrupt
        return None

    grid.fault = killed
    config = {"clients": M, "seed": 1, "out": str(tmp_path), "min-clients": M - 1}
    with pytest.raises(KeyboardInterrupt):
        run_app(grid, config)
    run_app(make_grid([client for client in range(M) if client != 2]), config)
    found = methods.Result.load(tmp_path)
    assert found.clients == tuple(map(str, range(M)))
    assert found.partition == DATA.truth
    absent = [each for stage in found.history for each in stage.notes.get("absent", [])]
    assert {each["client"] for each in absent} == {"2"}
    (tmp_path / "clients.json").write_text("[{}]")
    with pytest.raises(InputError, match=r"clients\.json is damaged"):
        run_app(make_grid(), config)


def test_settings_come_from_the_run_config() -> None:
    method, settings = configured(
        SR_FCA,
        {
            "srfca.clients": 5, "srfca.method": "ifca", "srfca.k": 3, "srfca.trim": 0.2,
            "srfca.lr": 1, "srfca.batch-size": "none", "srfca.min-clients": "none", "other": 1,
        },
    )  # fmt: skip
    assert isinstance(method, IFCA)
    assert (method.k, method.work.lr, method.work.batch_size) == (3, 1.0, None)
    assert method.work.steps == WORK.steps
    assert settings == Settings(clients=5)
    for wrong, why in (
        ({}, "srfca.clients must say how many"),
        ({"srfca.clients": "many"}, "srfca.clients must be a whole number"),
        ({"srfca.clients": 2, "srfca.tirm": 0.1}, "unknown setting 'srfca.tirm'"),
        ({"srfca.clients": 2, "srfca.method": "x"}, "unknown method"),
        ({"srfca.clients": 2, "srfca.trim": 0.9}, "0.9"),
        ({"srfca.clients": 2, "srfca.look": 0}, "srfca.look must be positive"),
        ({"srfca.clients": 2, "srfca.seed": -1}, "srfca.seed"),
    ):
        with pytest.raises(InputError, match=why):
            configured(SR_FCA, wrong)
    wrongs: list[tuple[dict[str, Any], str]] = [
        ({"clients": 0}, "clients must be at least 1"),
        ({"min_clients": 9}, "min_clients must be from 1 to 8"),
        ({"timeout": 0}, "timeout must be positive"),
    ]
    for options, why in wrongs:
        with pytest.raises(InputError, match=why):
            make(**options)


def test_the_data_of_several_clients_are_refused_by_name() -> None:
    grid = LocalGrid(make_app(data=lambda context: DATA), [0])
    message = Message(content({}), 1, "query.hello")
    message.metadata.__dict__["_message_id"] = "x"
    with pytest.raises(InputError, match="data must be of one client, not of 8"):
        grid.app(message, grid.contexts[1])


@pytest.mark.parametrize(("name", "asked"), [("local", False), ("fedem", True)])
def test_serving_needs_cluster_models(name: str, asked: bool) -> None:
    grid = make_grid()
    with pytest.raises(InputError, match="has no cluster models to serve"):
        run_app(grid, {"clients": M, "method": name, "serve": True})
    assert bool(grid.log) == asked, "who can tell beforehand asks nobody"


@given(
    hnp.arrays(np.float32, hnp.array_shapes(max_dims=3, max_side=5), elements=st.floats(width=32))
)
def test_arrays_come_back_as_they_were_sent(numbers: np.ndarray) -> None:
    tensor = torch.from_numpy(numbers)
    packed = pack(tensor)
    back = unpack(packed, tuple(tensor.shape), torch.float32)
    assert pack(back).data == packed.data
    assert name_of(pack(back)) == name_of(packed)
    with pytest.raises(NonsenseError):
        unpack(packed, (*tensor.shape, 1), torch.float32)
    with pytest.raises(NonsenseError):
        unpack(packed, tuple(tensor.shape), torch.float64)
    size = size_of(content({"text": "four", "numbers": [1.0, 2.0]}, {"x": packed}))
    assert size == len("text") + 4 + len("numbers") + 16 + len("x") + tensor.numel() * 4


@given(st.lists(st.lists(st.sampled_from("abcdef"), max_size=4), max_size=8), st.integers(2, 5))
def test_a_shelf_holds_the_newest(puts: list[list[str]], most: int) -> None:
    shelf = Shelf(4, most=most)
    every: list[str] = []
    for names in puts:
        shelf.put(names)
        every += names
    newest = list(dict.fromkeys(reversed(every)))[:most]
    assert shelf.names == newest[::-1]
    assert Shelf(2**30).names == []


def test_large_models_leave_little_on_the_shelf() -> None:
    shelf = Shelf(row_bytes=2**30)
    shelf.put("abc")
    assert shelf.names == ["b", "c"]


def test_shapes_are_checked_before_anything_is_sent() -> None:
    federation = make()
    messages = federation.wire.messages
    with pytest.raises(InputError, match="rows of length 28"):
        federation.losses(torch.zeros(2, 5), [0])
    nothing: Any = "nothing"
    with pytest.raises(InputError, match="no nothing data"):
        federation.losses(torch.zeros(2, 28), [0], nothing)
    mixture = Mixture(torch.zeros(2, 28), torch.full((1, 2), 0.5))
    assert federation.wire.messages == messages
    scores = federation.scores(mixture, [3], "test")
    assert torch.allclose(scores.loss, simulation().scores(mixture, [3], "test").loss)


def test_the_example_is_what_a_new_app_is(tmp_path: Path) -> None:
    example = Path(__file__).parent.parent / "examples" / "flower-digits"
    done = CliRunner().invoke(app, ["flower", "new", str(tmp_path / "flower-digits")])
    assert done.exit_code == 0, done.output
    for path in sorted(example.rglob("*.*")):
        if path.is_file() and "__pycache__" not in path.parts:
            written = tmp_path / "flower-digits" / path.relative_to(example)
            assert written.read_text() == path.read_text()
    with pytest.raises(InputError, match="is not empty"):
        new_app(tmp_path / "flower-digits")
    with pytest.raises(InputError, match="small letters, digits and dashes, not 'My App'"):
        new_app(tmp_path / "My App")


def test_the_example_s_settings_are_settings(tmp_path: Path) -> None:
    [path, *_] = new_app(tmp_path / "my-app")[2:]
    table = tomllib.loads(path.read_text())["tool"]["flwr"]["app"]["config"]["srfca"]
    method, settings = configured(SRFCA(), {f"srfca.{key}": table[key] for key in table})
    assert method == SRFCA(
        refine_steps=1, work=Work(steps=60, local_steps=30, batch_size=10, lr=0.5)
    )
    assert settings == Settings(clients=8, timeout=600.0)
