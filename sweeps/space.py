"""Search space of a sweep: the ranges that parameters declare, narrowed or replaced by a file.

A tunable parameter declares `json_schema_extra={"search": {...}}`: a `type` (`float`, `int` or `categorical`), then
`low`, `high` and optionally `log` or `step`; or `choices`. With `"by_default": False` it is searched only if a space
file names it.

A space file is YAML with the same keys:

    extends: default           # keep the declared ranges of all others; without it only these are searched
    sample:
      fanout: [5, 10, 20]      # choices
      hops: default            # the declared range
    train:
      epochs: {high: 10}       # the declared range, narrowed
      learning_rate: {low: 0.01, high: 0.1, log: true}
      optimizer: false         # not searched
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from itertools import product
from pathlib import Path
from typing import Any, Literal

from superworkflow.infra.base.errors import UserError
from superworkflow.infra.base.suggest import nearest
from superworkflow.infra.config.config_files import read_yaml
from superworkflow.infra.contract.params import StageParams, parse_params

Kind = Literal["float", "int", "categorical"]
Models = Mapping[str, type[StageParams]]

_KEYS = ("type", "low", "high", "step", "log", "choices")
_EXTENDS = "extends"
MOST_INTEGERS = 50
"""An integer range without a step has a grid when it holds no more values than this."""


@dataclass(frozen=True)
class Dimension:
    """One searched parameter.

    Args:
        name: dotted, such as `train.epochs`.
        kind: `float`, `int` or `categorical`.
        low: least value; None for choices.
        high: largest value; None for choices.
        step: distance of the values from each other; None for any value between.
        log: sampled evenly in the logarithm.
        choices: values of a categorical one.
    """

    name: str
    kind: Kind
    low: float | None = None
    high: float | None = None
    step: float | None = None
    log: bool = False
    choices: tuple[Any, ...] = ()

    @property
    def prefix(self) -> str:
        """Prefix of the parameters: the stage's name, or one that the superworkflow declares."""
        return self.name.partition(".")[0]

    @property
    def field(self) -> str:
        return self.name.partition(".")[2]

    def grid(self) -> list[Any]:
        """All values.

        Raises:
            UserError: the range is continuous, or has too many values.
        """
        if self.kind == "categorical":
            return list(self.choices)
        assert self.low is not None
        assert self.high is not None
        step = self.step or (
            1 if self.kind == "int" and self.high - self.low < MOST_INTEGERS and not self.log else None
        )
        if step is None:
            raise UserError(
                "this range has no grid", where=self.name, value=f"{self.low} to {self.high}",
                remedy="Name its values in the space file, such as [1, 2, 4], or give a step",
            )  # fmt: skip
        count = math.floor((self.high - self.low) / step + 1e-9) + 1
        values = [self.low + step * place for place in range(count)]
        return [int(value) for value in values] if self.kind == "int" else values

    def holds(self, value: Any) -> bool:
        """True for one of the choices, or a number of the range."""
        if self.kind == "categorical":
            return value in self.choices
        if isinstance(value, bool) or not isinstance(value, int | float):
            return False
        assert self.low is not None
        assert self.high is not None
        steps = (value - self.low) / (self.step or 1)
        return self.low <= value <= self.high and (not self.step or abs(steps - round(steps)) < 1e-9)

    def document(self) -> dict[str, Any]:
        """The dimension as an entry of a space file."""
        if self.kind == "categorical":
            return {"type": self.kind, "choices": list(self.choices)}
        given = {"type": self.kind, "low": self.low, "high": self.high, "step": self.step, "log": self.log or None}
        return {key: value for key, value in given.items() if value is not None}


@dataclass(frozen=True)
class Space:
    """Search space, ordered by stage and parameter."""

    dimensions: tuple[Dimension, ...]

    def document(self) -> dict[str, dict[str, Any]]:
        """By dotted name, as JSON values."""
        return {dimension.name: dimension.document() for dimension in self.dimensions}

    def grid(self) -> list[dict[str, Any]]:
        """All points; those that share the parameters of early stages are adjacent.

        Raises:
            UserError: a dimension has no grid.
        """
        names = [dimension.name for dimension in self.dimensions]
        return [dict(zip(names, point, strict=True)) for point in product(*(d.grid() for d in self.dimensions))]

    @classmethod
    def from_document(cls, document: Mapping[str, Mapping[str, Any]]) -> Space:
        """The inverse of `document`."""
        return cls(tuple(_from_entry(name, entry) for name, entry in document.items()))


def _from_entry(name: str, entry: Mapping[str, Any]) -> Dimension:
    return Dimension(
        name, entry["type"], low=entry.get("low"), high=entry.get("high"), step=entry.get("step"),
        log=entry.get("log", False), choices=tuple(entry.get("choices", ())),
    )  # fmt: skip


def build_space(models: Models, *, file: str | None = None, fixed: frozenset[str] = frozenset()) -> Space:
    """The space of a sweep.

    Args:
        models: parameter models by prefix, of the stages that trials run, in their order.
        file: path of a space file; the declared ranges when None.
        fixed: dotted names that the user has set; they are not searched by default.

    Raises:
        UserError: names the offending entry of the file, or says that nothing is left to search.
    """
    declared = _declared(models)
    if file is None:
        chosen = {
            name: entry for name, entry in declared.items() if entry.get("by_default", True) and name not in fixed
        }
        found = {name: _dimension(models, name, entry, name) for name, entry in chosen.items()}
    else:
        found = _from_file(models, declared, file, fixed)
    if not found:
        raise UserError(
            "nothing to search", where=file or "space", remedy="Name parameters and their ranges in a --space file"
        )
    order = [f"{prefix}.{name}" for prefix, model in models.items() for name in model.model_fields]
    return Space(tuple(found[name] for name in sorted(found, key=order.index)))


def _declared(models: Models) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    for prefix, model in models.items():
        for name, field in model.model_fields.items():
            extra = field.json_schema_extra
            search = extra.get("search") if isinstance(extra, dict) else None
            if isinstance(search, dict):
                found[f"{prefix}.{name}"] = dict(search)
    return found


def _from_file(
    models: Models, declared: Mapping[str, Mapping[str, Any]], file: str, fixed: frozenset[str]
) -> dict[str, Dimension]:
    values = dict(read_yaml(Path(file)))
    extends = values.pop(_EXTENDS, None)
    if extends not in (None, "default"):
        raise UserError("must be `default`", where=f"{file}: {_EXTENDS}", value=extends, remedy="Or leave it out")
    entries: dict[str, Any] = {}
    if extends:
        entries = {n: None for n, entry in declared.items() if entry.get("by_default", True) and n not in fixed}
    for name, entry in _flattened(values, file).items():
        prefix, _, field = name.partition(".")
        if prefix not in models or field not in models[prefix].model_fields:
            valid = [f"{p}.{f}" for p, model in models.items() for f in model.model_fields]
            raise UserError("unknown parameter", where=f"{file}: {name}", remedy=nearest(name, valid))
        if entry is False:
            entries.pop(name, None)
            continue
        if name in fixed:
            raise UserError(
                "this parameter is set to one value already", where=f"{file}: {name}",
                remedy="Leave it out of the space, or out of --set and --config",
            )  # fmt: skip
        entries[name] = entry
    found = {}
    for name, entry in entries.items():
        where = f"{file}: {name}"
        found[name] = _dimension(models, name, _narrowed(models, declared.get(name), entry, name, where), where)
    return found


def _flattened(values: Mapping[str, Any], file: str) -> dict[str, Any]:
    """Entries by dotted name; both `train: {epochs: …}` and `train.epochs: …` are read."""
    flat: dict[str, Any] = {}
    for prefix, entries in values.items():
        if "." in str(prefix):
            flat[str(prefix)] = entries
        elif isinstance(entries, Mapping):
            flat |= {f"{prefix}.{name}": entry for name, entry in entries.items()}
        else:
            raise UserError(
                "must be a mapping of parameters", where=f"{file}: {prefix}", value=entries,
                remedy=f"Write `{prefix}: {{parameter: [values]}}`",
            )  # fmt: skip
    return flat


def _narrowed(models: Models, declared: Mapping[str, Any] | None, entry: Any, name: str, where: str) -> dict[str, Any]:
    """One entry of a file as a declaration."""
    if isinstance(entry, list):
        return {"type": "categorical", "choices": entry}
    if entry is None or entry == "default" or entry == {}:
        if declared is None:
            raise UserError(
                "no range is declared for this parameter", where=where, remedy="Give its choices, or low and high"
            )
        return dict(declared)
    if not isinstance(entry, Mapping):
        raise UserError(
            "must be a list of choices or a range", where=where, value=entry,
            remedy=f"Write [value, value] or {{low: …, high: …}}; for one value use --set {name}={entry}",
        )  # fmt: skip
    for key in entry:
        if key not in _KEYS:
            raise UserError("unknown key", where=f"{where}.{key}", remedy=nearest(str(key), list(_KEYS)))
    if "choices" in entry:
        return {"type": "categorical", **entry}
    base = dict(declared) if declared and declared["type"] == entry.get("type", declared["type"]) else {}
    if base.get("type") == "categorical":
        base = {}
    prefix, _, field = name.partition(".")
    annotation = models[prefix].model_fields[field].annotation
    kind = "int" if annotation is int else "float" if annotation is float else None
    if "type" not in entry and "type" not in base:
        if kind is None:
            raise UserError("needs choices: it is not a number", where=where, value=dict(entry),
                            remedy="Write [value, value]")  # fmt: skip
        base["type"] = kind
    if entry.get("step") is not None:
        base.pop("log", None)
    if entry.get("log"):
        base.pop("step", None)
    return base | dict(entry)


def _dimension(models: Models, name: str, entry: Mapping[str, Any], where: str) -> Dimension:
    """A validated dimension: each end and choice is a value that the parameter takes."""
    kind = entry.get("type")
    if kind == "categorical":
        choices = entry.get("choices")
        if not isinstance(choices, list) or not choices:
            raise UserError("needs a list of choices", where=where, value=choices, remedy="Write [value, value]")
        values = tuple(_accepted(models, name, value, where) for value in choices)
        if len(set(map(repr, values))) < len(values):
            raise UserError("the same choice twice", where=where, value=choices, remedy="Leave one out")
        return Dimension(name, "categorical", choices=values)
    if kind not in ("float", "int"):
        raise UserError("unknown type", where=f"{where}.type", value=kind, remedy="Choose float, int or categorical")
    prefix, _, field = name.partition(".")
    if kind == "float" and models[prefix].model_fields[field].annotation is int:
        raise UserError("this parameter is a whole number", where=f"{where}.type", value=kind, remedy="Choose int")
    low, high = (_bound(models, name, entry.get(end), kind, f"{where}.{end}") for end in ("low", "high"))
    if low > high:
        raise UserError("low is above high", where=where, value=[low, high], remedy="Swap them")
    step, log = entry.get("step"), entry.get("log") or False
    if not isinstance(log, bool):
        raise UserError("must be true or false", where=f"{where}.log", value=log)
    if step is not None and (isinstance(step, bool) or not isinstance(step, int | float) or step <= 0):
        raise UserError("must be a number above 0", where=f"{where}.step", value=step)
    if step is not None and kind == "int" and not isinstance(step, int):
        raise UserError("must be a whole number, as the parameter is", where=f"{where}.step", value=step)
    if step is not None and log:
        raise UserError("a range has a step or is logarithmic, not both", where=where, remedy="Leave one out")
    if log and low <= 0:
        raise UserError("a logarithmic range starts above 0", where=f"{where}.low", value=low)
    if step is not None:  # the last value of the steps, since Optuna warns of any other end in each trial
        start, distance = Decimal(str(low)), Decimal(str(step))
        last = start + (Decimal(str(high)) - start) // distance * distance
        high = int(last) if kind == "int" else float(last)
    return Dimension(name, kind, low, high, step, log)


def _bound(models: Models, name: str, value: Any, kind: str, where: str) -> float:
    wanted = int if kind == "int" else (int, float)
    if isinstance(value, bool) or not isinstance(value, wanted):
        word = "a whole number" if kind == "int" else "a number"
        raise UserError(f"must be {word}", where=where, value=value, remedy="Give low and high")
    _accepted(models, name, value, where)
    return value if kind == "int" else float(value)


def _accepted(models: Models, name: str, value: Any, where: str) -> Any:
    """The value as the parameter's model keeps it."""
    prefix, _, field = name.partition(".")
    try:
        parsed = getattr(parse_params(models[prefix], {field: value}, prefix), field)
    except UserError as error:
        raise UserError(error.what, where=where, value=value, remedy=error.remedy) from None
    if parsed is not None and not isinstance(parsed, bool | int | float | str):
        raise UserError("only numbers, texts and true or false can be searched", where=where, value=value)
    return parsed
