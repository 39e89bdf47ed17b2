"""Variants of kernels that give the same bits, of which each processor runs another one fastest.

The first process that needs one times all that this processor can run, some milliseconds each, and the choice is kept
in the kernel cache, one file for each kind of processor. `SUPERWORKFLOW_VARIANTS`, such as
``prefetch=first,products=words``, forces any of them. A cached kernel is of the variants that it was compiled with: its
key in Numba's index names those that the kernel or a function below it depends on, so that neither a forced choice nor
an image made on another machine brings back a kernel of another variant.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

from numba.core.caching import Cache
from numba.core.registry import cpu_target

from superworkflow.infra.base.errors import UserError
from superworkflow.infra.process.compile_clock import clock

VARIABLE = "SUPERWORKFLOW_VARIANTS"
_ROUNDS = 5
_marked: dict[int, KernelChoice] = {}
_described = ("model name", "cpu family", "model", "stepping", "CPU implementer", "CPU part")


class KernelChoice:
    """The variant of some kernels that this process compiles and loads.

    Args:
        name: as in `VARIABLE`.
        unit: of the rates.
        rates: gives the variants that this process can run, the default first, each with a function that measures its
            rate for some milliseconds.
        folder: gives the folder where the choice is kept.
    """

    def __init__(
        self, name: str, unit: str, rates: Callable[[], Mapping[str, Callable[[], float]]], folder: Callable[[], str]
    ):
        self.name, self.unit, self._rates, self._folder = name, unit, rates, folder

    def marks(self, function: Any) -> Any:
        """`function`, an intrinsic whose code depends on this choice; kernels that call it are cached by variant."""
        _marked[id(function)] = self
        return function

    @cached_property
    def available(self) -> tuple[str, ...]:
        """Variants that this process can run."""
        return tuple(self._rates())

    @cached_property
    def forced(self) -> str | None:
        """The variant that the environment asks for.

        Raises:
            UserError: this processor does not have it.
        """
        parts = (part.partition("=") for part in os.environ.get(VARIABLE, "").split(",") if part)
        value = {name.strip(): value.strip() for name, _, value in parts}.get(self.name)
        if value is not None and value not in self.available:
            raise UserError(
                f"this processor has no such variant of {self.name}", where=VARIABLE, value=value,
                remedy=f"Choose {' or '.join(self.available)}, or leave it out",
            )  # fmt: skip
        return value

    @cached_property
    def value(self) -> str:
        """The variant: forced, alone, kept, or measured now."""
        if self.forced is not None:
            return self.forced
        if len(self.available) == 1:
            return self.available[0]
        return max(self.rates, key=self.rates.__getitem__)

    @cached_property
    def rates(self) -> dict[str, float]:
        """Rates of all variants: kept, or measured now."""
        rates = self.kept()
        if rates is None:
            rates = self.measured()
            self._keep(rates)
        return rates

    def kept(self) -> dict[str, float] | None:
        """Rates that an earlier process measured, unless it could run other variants."""
        with suppress(OSError, ValueError):
            found = json.loads(self._path().read_text())
            if set(found) == set(self.available):
                return {name: float(found[name]) for name in self.available}
        return None

    def measured(self) -> dict[str, float]:
        """Highest rates of a few turns, so that a pause of the machine meets no variant alone."""
        functions, rates = self._rates(), dict.fromkeys(self.available, 0.0)
        clock.begin()  # part of compiling, not of what a stage does
        try:
            for _ in range(_ROUNDS):
                for name, rate in functions.items():
                    rates[name] = max(rates[name], rate())
        finally:
            clock.end()
        return rates

    def _keep(self, rates: Mapping[str, float]) -> None:
        path = self._path()
        partial = path.with_suffix(f".{os.getpid()}")
        with suppress(OSError):  # a folder that cannot be written to: each process measures
            path.parent.mkdir(parents=True, exist_ok=True)
            partial.write_text(json.dumps(rates))
            partial.replace(path)

    def _path(self) -> Path:
        return Path(self._folder()) / f"variants-{self.name}-{processor()}.json"


def processor() -> str:
    """Names the kind of processor and the features that kernels are compiled for."""
    target = cpu_target.target_context.codegen().magic_tuple()
    lines: set[str] = set()
    with suppress(OSError):
        lines = {line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith(_described)}
    return hashlib.sha256(repr((target, sorted(lines))).encode()).hexdigest()[:12]


def choices_of(function: Any) -> list[KernelChoice]:
    """Choices that a kernel's code depends on, by itself or by a function that it calls, in order of their names."""
    return sorted(set(_found(function, set())), key=lambda choice: choice.name)


def _found(function: Any, seen: set[int]) -> Iterator[KernelChoice]:
    if id(function) in seen:
        return
    seen.add(id(function))
    for value in _referenced(function):
        if id(value) in _marked:
            yield _marked[id(value)]
        inner = getattr(value, "py_func", value)
        if isinstance(inner, FunctionType):
            yield from _found(inner, seen)


def _referenced(function: FunctionType) -> Iterator[Any]:
    """Globals and cells that a function's code names, and attributes of modules among them."""
    names = set(_names(function.__code__))
    for cell in function.__closure__ or ():
        with suppress(ValueError):  # not filled yet
            yield cell.cell_contents
    for name in names:
        value = function.__globals__.get(name)
        yield value
        if isinstance(value, ModuleType) and value.__name__.startswith("superworkflow."):
            yield from (getattr(value, attribute, None) for attribute in names)


def _names(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)


_plain_key: Any = Cache._index_key


def _index_key(cache: Any, signature: Any, codegen: Any) -> Any:
    """Numba's key of a kernel in its index, and the variants that the kernel depends on."""
    key = _plain_key(cache, signature, codegen)
    chosen = tuple((choice.name, choice.value) for choice in choices_of(cache._py_func))
    return (*key, chosen) if chosen else key


setattr(Cache, "_index_key", _index_key)  # noqa: B010  # to mypy a method cannot be assigned
