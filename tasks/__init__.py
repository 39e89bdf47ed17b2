"""What a stage does: one module or folder for each stage, found by its name."""

from __future__ import annotations

import importlib
import pkgutil
from typing import Any, cast

from superworkflow.infra.errors import UserError
from superworkflow.infra.params import nearest
from superworkflow.infra.stage import Stage


def stage_names() -> list[str]:
    """Names of all stages."""
    return sorted(module.name for module in pkgutil.iter_modules(__path__) if not module.name.startswith("_"))


def load_stage(name: str) -> Stage[Any]:
    """The stage of this name.

    Raises:
        UserError: there is none; the message names the nearest one.
    """
    if name not in stage_names():
        raise UserError("no such stage", where=name, remedy=nearest(name, stage_names()))
    return cast("Stage[Any]", importlib.import_module(f"superworkflow.tasks.{name}").STAGE)
