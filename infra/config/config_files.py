"""Parameters of a run, from all the places they may be set.

Precedence, later wins:

| source | example |
| --- | --- |
| defaults | the stage's parameter model |
| configuration file | `--config my.yaml` holding `train: {epochs: 3}` |
| command line | `--set train.epochs=3` |
| trial of a sweep | suggested by the sampler |
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import yaml

from superworkflow.infra.base.errors import UserError
from superworkflow.infra.base.suggest import nearest
from superworkflow.infra.contract.params import StageParams, parse_params
from superworkflow.infra.storage.location import Location

_EXPONENT = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)[eE][-+]?\d+")


def read_yaml(path: str | Path) -> dict[str, Any]:
    """A YAML file that holds a mapping, by its path or URI.

    Raises:
        UserError: missing, unreadable, not YAML (with line), or not a mapping.
    """
    try:
        value = yaml.safe_load(Location.of(path).read_text())
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise UserError(f"cannot be read: {reason}", where=str(path), remedy="Check the path") from None
    except UnicodeDecodeError:
        raise UserError("not a text file in UTF-8", where=str(path), remedy="Check the path") from None
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f"{path}:{mark.line + 1}" if mark else str(path)
        problem = getattr(error, "problem", None) or "not YAML"
        raise UserError(f"not valid YAML: {problem}", where=where, remedy="Correct the syntax") from None
    except UserError:
        raise
    except Exception as error:  # of a remote file: the client's own words say what is wrong
        raise UserError(f"cannot be read: {type(error).__name__}: {error}", where=str(path),
                        remedy="Check the URI and the credentials") from None  # fmt: skip
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise UserError(
            "must be a mapping",
            where=str(path),
            value=type(value).__name__,
            remedy="Write lines such as `train: {epochs: 3}`",
        )
    return value


def parse_assignments(
    assignments: Iterable[str], models: Mapping[str, type[StageParams]] = MappingProxyType({})
) -> dict[str, dict[str, Any]]:
    """Values of `--set stage.parameter=value`; the value is YAML, so that 0.5, true, [1, 2] and text all work.

    Parameters that are text get theirs as it is written: YAML would make 7 of the node 007, and false of no.

    Args:
        assignments: of the command line.
        models: parameter model by prefix.

    Raises:
        UserError: not of that form.
    """
    values: dict[str, dict[str, Any]] = {}
    for text in assignments:
        key, equals, raw = text.partition("=")
        stage, dot, parameter = key.strip().partition(".")
        if not (equals and dot and stage and parameter):
            raise UserError(
                "not of the form stage.parameter=value",
                where="--set",
                value=text,
                remedy="Write --set train.epochs=3",
            )
        try:
            value = _number(yaml.safe_load(raw))
            if not isinstance(value, str) and stage in models and parameter in models[stage].model_fields:
                kind = models[stage].model_fields[parameter].annotation
                value = raw.strip() if kind is str or (kind == str | None and value is not None) else value
            values.setdefault(stage, {})[parameter] = value
        except yaml.YAMLError:
            raise UserError("the value cannot be read", where=f"--set {key}", value=raw, remedy="Quote text") from None
    return values


def _number(value: Any) -> Any:
    """YAML 1.1 reads `1e-3` as text; people mean a number. Other text that Python would take for one stays text."""
    return float(value) if isinstance(value, str) and _EXPONENT.fullmatch(value) else value


def resolve(
    models: Mapping[str, type[StageParams]],
    config: Mapping[str, Any],
    assignments: Mapping[str, Mapping[str, Any]],
    origin: str = "configuration",
) -> dict[str, StageParams]:
    """Merge and validate the parameters of all stages.

    Args:
        models: parameter model by prefix.
        config: values of the configuration file by prefix.
        assignments: values of the command line by prefix.
        origin: name of the configuration file, for errors.

    Raises:
        UserError: an unknown prefix or parameter (with the nearest valid one), or a bad value.
    """
    for source, values in ((origin, config), ("--set", assignments)):
        for prefix, entries in values.items():
            if prefix not in models:
                dotted = [f"{p}.{field}" for p, model in models.items() for field in model.model_fields]
                names = [f"{prefix}.{key}" for key in entries] if isinstance(entries, Mapping) and entries else [prefix]
                raise UserError("unknown parameter", where=f"{source} {names[0]}", remedy=nearest(names[0], dotted))
            if not isinstance(entries, Mapping):
                raise UserError("must be a mapping of parameters", where=f"{source} {prefix}", value=entries,
                                remedy=f"Write `{prefix}: {{parameter: value}}`")  # fmt: skip
    return {
        prefix: parse_params(model, {**config.get(prefix, {}), **assignments.get(prefix, {})}, prefix)
        for prefix, model in models.items()
    }
