"""The registry of methods, and every registered method through ``check_method``."""

from __future__ import annotations

import sys
from dataclasses import dataclass, fields
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar

import pytest

import srfca.methods
from srfca import SRFCA, FedAvg, InputError, Local, Method
from srfca.methods import IFCA, METHODS, Answer, Run, all_methods, register
from srfca.methods._common.base import FAMILIES
from srfca.testing import METHOD_CHECKS, check_method

PAGES = Path(__file__).parents[2] / "docs" / "methods"
PARAMETERS: dict[str, dict[str, Any]] = {"fedgroup": {"k": 2}, "pacfl": {"rank": 2}}
"""Parameters for the six clients of ``check_method``, where the defaults do not fit."""


@pytest.mark.parametrize("key", METHODS.keys())
def test_every_method_is_a_good_citizen(key: str) -> None:
    check_method(METHODS[key], parameters=PARAMETERS.get(key))


@pytest.mark.parametrize(
    "key", [key for key, kind in METHODS.items().items() if hasattr(kind, "participation")]
)
def test_every_method_is_a_good_citizen_if_half_of_the_clients_take_part(key: str) -> None:
    parameters = {"participation": 0.5, **PARAMETERS.get(key, {})}
    checks = {"result", "missing replies", "budget", "progress"}
    check_method(METHODS[key], parameters=parameters, skip=set(METHOD_CHECKS) - checks)


@pytest.mark.parametrize("key", METHODS.keys())
def test_every_method_has_a_page(key: str) -> None:
    module = METHODS[key].__module__.removeprefix("srfca.methods.").split(".")[0]
    assert (PAGES / f"{module}.md").exists()


@pytest.mark.parametrize("key", METHODS.keys())
def test_a_method_that_needs_k_has_it_as_a_parameter(key: str) -> None:
    names = {parameter.name for parameter in fields(METHODS[key])}
    assert not METHODS[key].needs_k or "k" in names
    assert METHODS[key].needs_truth == ("truth" in names)


def test_all_methods_are_ordered_by_family_and_name() -> None:
    methods = all_methods()
    assert {method.key for method in methods} == set(METHODS.keys())
    order = [(FAMILIES.index(method.family), method.name.lower()) for method in methods]
    assert order == sorted(order)
    assert methods[0] is SRFCA


def test_methods_can_be_imported_by_the_name_of_their_class() -> None:
    assert IFCA is METHODS["ifca"]
    assert {"IFCA", "SRFCA", "FedRep"} <= set(dir(srfca.methods))
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        srfca.methods.Nothing  # noqa: B018
    with pytest.raises(ImportError):
        from srfca.methods import AnotherNothing  # noqa: F401


def test_methods_are_found_by_key() -> None:
    assert METHODS["global"] is FedAvg
    assert METHODS["local"] is Local
    assert "sr-fca" in METHODS
    with pytest.raises(InputError, match="unknown method 'sr-fac': did you mean 'sr-fca'"):
        METHODS["sr-fac"]


@dataclass(frozen=True, kw_only=True)
class Unregistered(Method):
    """A method of another package."""

    key: ClassVar[str] = "unregistered"
    name: ClassVar[str] = "Unregistered"
    paper: ClassVar[str] = "None."

    def solve(self, run: Run) -> Answer:
        raise NotImplementedError


def test_a_class_of_any_module_is_found_by_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("somebodys_methods")
    module.Unregistered = Unregistered  # type: ignore[attr-defined]
    module.number = 3  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "somebodys_methods", module)
    assert METHODS["somebodys_methods:Unregistered"] is Unregistered
    assert "unregistered" not in METHODS, "it is not registered by that"
    with pytest.raises(InputError, match=r"must be a subclass of srfca\.methods\.Method"):
        METHODS["somebodys_methods:number"]
    with pytest.raises(InputError, match="'somebodys_methods' has no attribute 'Missing'"):
        METHODS["somebodys_methods:Missing"]
    with pytest.raises(InputError, match="there is no module 'no_such_module'"):
        METHODS["no_such_module:Method"]


@pytest.mark.parametrize("attribute", ["key", "name", "paper"])
def test_a_method_must_declare_what_it_is(attribute: str) -> None:
    declared = {"key": "incomplete", "name": "Incomplete", "paper": "None."}
    del declared[attribute]
    incomplete = type("Incomplete", (Method,), declared)
    with pytest.raises(InputError, match=f"method Incomplete must declare '{attribute}'"):
        register(incomplete)
    assert "incomplete" not in METHODS


def test_two_methods_cannot_have_the_same_key() -> None:
    double = type("Double", (Unregistered,), {"key": "ifca"})
    with pytest.raises(InputError, match=r"two methods have the key 'ifca': .*IFCA and .*Double"):
        register(double)
    assert METHODS["ifca"] is IFCA
    assert register(IFCA) is IFCA, "registering a class again changes nothing"
