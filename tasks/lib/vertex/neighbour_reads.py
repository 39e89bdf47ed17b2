"""Fields that updates may read of neighbours: only these travel to ghosts, and are prefetched."""

from __future__ import annotations

import dis
import math
from collections.abc import Callable, Sequence
from types import CodeType, FunctionType, ModuleType
from typing import Any

import numpy as np

from superworkflow.tasks.lib.vertex.gather_apply import is_update_of_parts
from superworkflow.tasks.lib.vertex.helpers import helpers_of
from superworkflow.tasks.lib.vertex.program import VertexProgram

_NO_CODE = (lambda: None).__code__
_MODULES = (math, np)


def fields_of_neighbours(program: VertexProgram) -> list[str]:
    """Names of the fields that a program may read, or write, of a neighbour, in their order.

    It is decided by the bytecode, on the safe side: an attribute that is not read directly of a function's own scope
    counts, and where it cannot be seen what a function reads, all fields do.
    """
    every = list(program.fields)
    if program.consistency == "full":
        return every
    folds = [sync.fold for sync in program.syncs.values()]
    read = _read_in([each for each in (program.init, *_parts(program), *folds) if each is not None])
    return every if read is None else [name for name in every if name in read]


def fields_of_updates(program: VertexProgram) -> list[str]:
    """Names of the fields that updates alone read of a neighbour; none where that cannot be seen."""
    read = _read_in(_parts(program)) or set()
    return [name for name in program.fields if name in read]


def _parts(program: VertexProgram) -> list[Callable[..., Any]]:
    """The functions that make the update."""
    if not is_update_of_parts(program.update):
        return [program.update]
    return [each for each in (program.gather, program.apply, program.scatter) if each is not None]


def _read_in(entries: Sequence[Callable[..., Any]]) -> set[str] | None:
    """Attributes that functions, and their helpers, may read of neighbours; None if that cannot be seen."""
    read: set[str] = set()
    for entry in entries:
        functions: list[Callable[..., Any]] = [*helpers_of(entry)] or [entry]
        for number, function in enumerate(functions):
            found = _read_by(function, own=number == 0)
            if found is None:
                return None
            read |= found
    return read


def ways_of(program: VertexProgram) -> tuple[bool, bool]:
    """True if updates read neighbours by out-edges, and if they do by in-edges; only of what is seen in their text."""
    if is_update_of_parts(program.update):
        return program.scatter is not None, True
    functions: list[Callable[..., Any]] = [*helpers_of(program.update)] or [program.update]
    names = {name for each in functions for name in getattr(each, "__code__", _NO_CODE).co_names}
    return "neighbour" in names, bool(names & {"neighbour", "in_neighbour"})


def _read_by(function: Callable[..., Any], own: bool) -> set[str] | None:
    """Attributes that a function may read of neighbours; None if that cannot be seen.

    Args:
        function: of a program.
        own: its first argument is the scope of the vertex itself.
    """
    if not isinstance(function, FunctionType) or function.__closure__ or function.__defaults__:
        return None
    code, read, before = function.__code__, set[str](), ""
    if any(isinstance(each, CodeType) for each in code.co_consts):
        return None
    scope = code.co_varnames[0] if own and code.co_argcount else ""
    for each in dis.get_instructions(code):
        if each.opname.startswith("STORE_FAST") and scope and scope in str(each.argval):
            return _read_by(function, own=False)
        named = each.argval if each.opname == "LOAD_GLOBAL" else ""
        if named in ("getattr", "setattr") or not _is_plain(function.__globals__.get(named)):
            return None
        if each.opname in ("LOAD_ATTR", "LOAD_METHOD") and before != f"LOAD_FAST {scope}":
            read.add(each.argval)
        if each.opname not in ("COPY", "DUP_TOP"):  # as in `scope.field += 1`
            before = f"{each.opname} {each.argval}"
    return read


def _is_plain(value: Any) -> bool:
    """True of a global that reads no fields or is among the helpers: of no compiled function, and no tuple of some."""
    if isinstance(value, ModuleType):
        return value in _MODULES
    return value is None or isinstance(
        value, int | float | complex | str | np.generic | np.ndarray | type | FunctionType
    )
