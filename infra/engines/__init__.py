"""Engines compute inside a stage: one package for each, found by its name. `base` is their contract.

What the tasks of members share, whatever the engine: `task_writer` writes to the dataset from there, `shared_dataset`
reads.
"""

from __future__ import annotations

import functools
import importlib
import pkgutil
from typing import Any

from superworkflow.infra.base.errors import UserError
from superworkflow.infra.base.suggest import nearest
from superworkflow.infra.contract.stage import IN_PROCESS, Stage
from superworkflow.infra.engines.base import Engine


@functools.cache
def engine_names() -> list[str]:
    """Names of all engines; the one that every stage has comes first."""
    found = sorted(module.name.replace("_", "-") for module in pkgutil.iter_modules(__path__) if module.ispkg)
    return sorted(found, key=lambda name: name != IN_PROCESS)


@functools.cache
def engine(name: str) -> Engine:
    """The engine of this name.

    Raises:
        UserError: there is none; the message names the nearest one.
    """
    if name not in engine_names():
        raise UserError("no such engine", where=name, remedy=nearest(name, engine_names()))
    found = importlib.import_module(f"{__name__}.{name.replace('-', '_')}").ENGINE
    assert isinstance(found, Engine)
    return found


def image_kind(stage: Stage[Any], name: str) -> str:
    """Kind of image that holds what a stage needs on an engine."""
    return engine(name).image or stage.images.get(name, stage.image)


def engines() -> list[Engine]:
    """All engines."""
    return [engine(name) for name in engine_names()]


def member_commands() -> dict[str, str]:
    """Commands that members of engines run, each with the import string of its function."""
    return {command: function for each in engines() for command, function in each.commands.items()}
