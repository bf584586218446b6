"""A stand-in for Ray that does everything in this process, at once, and loses workers on demand."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pytest
from ray.exceptions import ActorDiedError, RayError

from srfca.ray.cluster import Node


@dataclass(eq=False)
class Reference:
    """What a call returns: a value, or the error that fetching it raises."""

    value: Any = None
    error: RayError | None = None


@dataclass(eq=False)
class Actor:
    """An object whose methods are called by ``actor.method.remote(...)``."""

    ray: InProcess
    made: Any
    lives: bool = True

    def __getattr__(self, name: str) -> Method:
        return Method(self, name)


@dataclass
class Method:
    actor: Actor
    name: str
    num_returns: int = 1

    def options(self, num_returns: int) -> Method:
        return Method(self.actor, self.name, num_returns)

    def remote(self, *arguments: Any) -> Any:
        done = self.actor.ray.call(self.actor, self.name, arguments)
        if self.num_returns == 1:
            return done
        if done.error is not None:
            return [done] * self.num_returns
        return [Reference(part) for part in done.value]


@dataclass
class ActorClass:
    ray: InProcess
    kind: type

    def options(self, **options: Any) -> ActorClass:
        assert options["num_cpus"] >= 0
        return self

    def remote(self, *arguments: Any) -> Actor:
        actor = Actor(self.ray, self.kind(*arguments), self.ray.starts)
        self.ray.actors.append(actor)
        return actor


@dataclass
class Task:
    """A function that runs at once."""

    ray: InProcess
    function: Callable[..., Any]
    num_returns: int = 1

    def remote(self, *arguments: Any) -> Any:
        values = [self.ray.get(a) if isinstance(a, Reference) else a for a in arguments]
        result = self.function(*values)
        return Reference(result) if self.num_returns == 1 else [Reference(part) for part in result]


@dataclass
class InProcess:
    """The functions of Ray that a pool uses.

    Args:
        lost: The numbers of calls to shards, from 0, during which the worker ends.
        starts: Whether new workers start.
    """

    lost: Collection[int] = ()
    starts: bool = True
    calls: int = 0
    actors: list[Actor] = field(default_factory=list)

    def remote(self, kind: Any = None, **options: Any) -> Any:
        if kind is None:
            return partial(self.remote, **options)
        if isinstance(kind, type):
            return ActorClass(self, kind)
        return Task(self, kind, options.get("num_returns", 1))

    def put(self, value: Any) -> Reference:
        return Reference(value)

    def get(self, references: Reference | Sequence[Reference]) -> Any:
        if not isinstance(references, Reference):
            return [self.get(reference) for reference in references]
        if references.error is not None:
            raise references.error
        return references.value

    def wait(
        self, references: Sequence[Reference], num_returns: int = 1, timeout: float | None = None
    ) -> tuple[list[Reference], list[Reference]]:
        if timeout is not None and any(r.error is not None for r in references):
            return [], list(references)
        return list(references[:num_returns]), list(references[num_returns:])

    def kill(self, actor: Actor) -> None:
        actor.lives = False

    def call(self, actor: Actor, name: str, arguments: tuple[Any, ...]) -> Reference:
        if name in ("call", "call_apart", "bounds", "aggregate"):
            if self.calls in self.lost:
                actor.lives = False
            self.calls += 1
        if not actor.lives:
            return Reference(error=ActorDiedError())
        try:
            values = [self.get(a) if isinstance(a, Reference) else a for a in arguments]
        except RayError as error:
            return Reference(error=error)
        return Reference(getattr(actor.made, name)(*values))

    def install(self, monkeypatch: pytest.MonkeyPatch, cpus: int = 4) -> None:
        """Let federations use this instead of Ray, on one machine."""
        monkeypatch.setattr("srfca.ray.pool.ray", self)
        monkeypatch.setattr("srfca.ray.datasets.ray", self)
        monkeypatch.setattr("srfca.ray.federation.connect", lambda address: None)
        monkeypatch.setattr("srfca.ray.federation.nodes", lambda: [Node(cpus, 0)])
