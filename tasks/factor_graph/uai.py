"""Models and evidence in the text format of the UAI competitions: a word for the kind, then numbers between blanks.

Lines after a `c` are comments, and of some writers everything after #. Tables change fastest in the last variable;
pyAgrum 3.3.1 reads and writes the parents in a Bayesian network's tables the other way round, the first fastest.
"""

from __future__ import annotations

import math
import re
import warnings
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from superworkflow.infra.base.errors import UserError
from superworkflow.infra.storage.text_file import open_unpacked

KINDS = ("MARKOV", "BAYES")
MOST_STATES = 1 << 16
_COMMENT = re.compile(r"#.*|^c([^\S\n].*)?$", re.MULTILINE)
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?|[+-]?(nan|inf|infinity)", re.IGNORECASE)


class FactorModel(NamedTuple):
    """A model: the product of non-negative tables of few variables each.

    Args:
        kind: MARKOV or BAYES.
        states: int64 [variables], how many each has.
        scopes: of each factor its variables in the file's order.
        tables: of each factor float64 [product of its variables' states]; the last variable's state changes fastest.
    """

    kind: str
    states: NDArray[np.int64]
    scopes: list[list[int]]
    tables: list[NDArray[np.float64]]


class _Numbers:
    """The numbers of a text, taken in order; raises UserError where a word is none, or there are too few."""

    def __init__(self, text: str, where: str):
        self._where, self._place = where, 0
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("error", DeprecationWarning)
                self._values = np.fromstring(text, sep=" ") if text and not text.isspace() else np.empty(0)
        except (ValueError, DeprecationWarning):
            word = next((word for word in text.split() if not _NUMBER.fullmatch(word)), "")
            raise UserError("a word where a number is expected", where=where, value=word[:40],
                            remedy="Write numbers alone after the first word") from None  # fmt: skip
        self.are_weights = bool((self._values >= 0).all() and np.isfinite(self._values).all())

    @property
    def left(self) -> int:
        return len(self._values) - self._place

    def take(self, count: int, what: str) -> NDArray[np.float64]:
        """The next numbers; `what` says for people what they are."""
        if count > self.left:
            raise UserError("the file ends too early", where=f"{self._where}: {what}",
                            value=f"{self.left} of {count} numbers", remedy="Copy or complete it")  # fmt: skip
        self._place += count
        return self._values[self._place - count : self._place]

    def whole(self, count: int, what: str, low: int, high: int, fault: str = "") -> list[int]:
        """The next numbers, which are whole ones from `low` to `high`."""
        values = self.take(count, what).tolist()
        for value in values:
            if not (low <= value <= high and value.is_integer()):
                raise UserError(fault or "no whole number in the range", where=f"{self._where}: {what}",
                                value=f"{value:.17g}", remedy=f"Give {low} to {high}")  # fmt: skip
        return list(map(int, values))

    def end(self) -> None:
        """Refuse further numbers."""
        if self.left:
            raise UserError("numbers after the end", where=self._where, value=f"{self.left} numbers",
                            remedy="Check the counts at the beginning, or remove what is left over")  # fmt: skip


def _text(path: Path, where: str) -> str:
    with open_unpacked(path, where) as stream:
        return _COMMENT.sub("", stream.read().decode("utf-8-sig", "replace"))


def read_model(path: Path, where: str) -> FactorModel:
    """The model of a file.

    Args:
        path: of the file, which may be gzipped.
        where: its name for people.

    Raises:
        UserError: another format, a truncated file, a table of wrong length or with an entry that is negative or no
            number, or a variable that does not exist.
    """
    kind, *rest = _text(path, where).split(None, 1) or [""]
    if kind.upper() not in KINDS:
        raise UserError("no model in the UAI format", where=where, value=kind[:40],
                        remedy=f"Begin the file with {' or '.join(KINDS)}")  # fmt: skip
    numbers = _Numbers("".join(rest), where)
    (variables,) = numbers.whole(1, "number of variables", 1, 2**31 - 1)
    states = numbers.whole(variables, "states of the variables", 1, MOST_STATES)
    (factors,) = numbers.whole(1, "number of factors", 0, 2**31 - 1 - variables)
    scopes, tables = [], []
    for factor in range(factors):
        what = f"scope of factor {factor}"
        (arity,) = numbers.whole(1, what, 0, variables)
        scopes.append(numbers.whole(arity, what, 0, variables - 1, "no such variable"))
        if arity > 1 and len(set(scopes[-1])) < arity:
            raise UserError("a factor names a variable twice", where=f"{where}: {what}",
                            value=" ".join(map(str, scopes[-1])), remedy="Name each variable once")  # fmt: skip
    for factor, scope in enumerate(scopes):
        what, sizes = f"table of factor {factor}", [states[variable] for variable in scope]
        (size,) = numbers.take(1, what)
        if size != math.prod(sizes):
            product = f" = {' · '.join(map(str, sizes))}" if len(sizes) > 1 else ""
            raise UserError(
                f"a table has an entry for each joint state of its variables, {math.prod(sizes)}{product}",
                where=f"{where}: {what}", value=f"{size:.17g}", remedy="Correct the length, or the states of variables",
            )  # fmt: skip
        tables.append(numbers.take(int(size), what))
        _check(tables[-1], f"{where}: {what}", numbers.are_weights)
    numbers.end()
    return FactorModel(kind.upper(), np.array(states), scopes, tables)


def _check(table: NDArray[np.float64], where: str, are_weights: bool) -> None:
    if not are_weights and (wrong := ~np.isfinite(table) | (table < 0)).any():
        entry = int(np.argmax(wrong))
        raise UserError("an entry is a finite number from 0 on", where=f"{where}, entry {entry}",
                        value=f"{table[entry]:.17g}", remedy="Correct it; tables have no logarithms")  # fmt: skip
    if not table.any():
        raise UserError("no entry is above 0, so that nothing is possible", where=where,
                        remedy="Give a joint state a weight above 0")  # fmt: skip


def read_evidence(path: Path, where: str, states: NDArray[np.int64]) -> dict[int, int]:
    """Observed states by variable; the format's older form, which begins with the number of samples, is read too.

    Args:
        path: of the file, which may be gzipped.
        where: its name for people.
        states: int64 [variables], how many each has.

    Raises:
        UserError: a truncated file, several samples, or a variable or state that does not exist.
    """
    numbers = _Numbers(_text(path, where), where)
    given = numbers.left
    (count,) = numbers.whole(1, "number of observed variables", 0, len(states))
    if given % 2 == 0:  # pairs after two counts
        if count != 1:
            raise UserError("the file has several samples of evidence, or a state is missing", where=where, value=count,
                            remedy="Give one: the number of variables, then variable and state of each")  # fmt: skip
        (count,) = numbers.whole(1, "number of observed variables", 0, len(states))
    found: dict[int, int] = {}
    for number in range(count):
        what = f"observation {number}"
        (variable,) = numbers.whole(1, what, 0, len(states) - 1, "no such variable")
        (state,) = numbers.whole(1, f"{what}, variable {variable}", 0, int(states[variable]) - 1, "no such state")
        if found.setdefault(variable, state) != state:
            raise UserError("a variable is observed in two states", where=f"{where}: variable {variable}",
                            value=f"{found[variable]} and {state}", remedy="Keep one of them")  # fmt: skip
    numbers.end()
    return found
