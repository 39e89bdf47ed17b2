"""Plain functions that a program's functions call by name, compiled with these."""

from __future__ import annotations

import dis
import inspect
import random
from collections.abc import Callable
from itertools import pairwise
from types import FunctionType
from typing import Any

import numpy as np


def helpers_of(function: Callable[..., Any]) -> list[FunctionType]:
    """Plain functions that a function calls by name, and those that they call; it is the first itself."""
    found = [function] if isinstance(function, FunctionType) else []
    for each in found:
        named = (each.__globals__.get(name) for name in each.__code__.co_names)
        found += [other for other in named if isinstance(other, FunctionType) and other not in found]
    return found


def generator_of(function: Callable[..., Any] | None) -> str:
    """Name by which a function or a helper of it calls Python's or NumPy's generator of random numbers; else empty."""
    for each in [] if function is None else helpers_of(function):
        for step, after in pairwise(dis.get_instructions(each)):
            value, name = each.__globals__.get(step.argval) if step.opname == "LOAD_GLOBAL" else None, step.argval
            if value is np and after.argval == "random":
                value, name = np.random, f"{name}.random"
            owner = getattr(value, "__self__", None)
            if value is random or value is np.random or isinstance(owner, random.Random | np.random.RandomState):
                return str(name)
    return ""


def files_of(function: Callable[..., Any]) -> list[str]:
    """Files in which a function and its helpers are written."""
    files = (inspect.getsourcefile(each) for each in helpers_of(function))
    return sorted({file for file in files if file})


def with_helpers(function: Callable[..., Any], compiled: Callable[[Any], Any]) -> Callable[..., Any]:
    """The function as it is, but that it calls its helpers compiled.

    Args:
        function: of a program.
        compiled: compiles a function.
    """
    if not isinstance(function, FunctionType):
        return function
    names = {
        name: compiled(with_helpers(other, compiled))
        for name in function.__code__.co_names
        if isinstance(other := function.__globals__.get(name), FunctionType) and other is not function
    }
    if not names:
        return function
    made = FunctionType(
        function.__code__, {**function.__globals__, **names}, function.__name__, function.__defaults__,
        function.__closure__,
    )  # fmt: skip
    made.__qualname__, made.__module__ = function.__qualname__, function.__module__
    return made
