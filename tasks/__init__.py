"""Stages: one package for each, found by its name; `lib` holds what they share.

Installed packages add stages by entry points of the group `superworkflow.stages`.
"""

from __future__ import annotations

from typing import Any

from superworkflow.infra.contract.registry import Registry
from superworkflow.infra.contract.stage import Stage

_STAGES: Registry[Stage[Any]] = Registry("stage", Stage, __name__, __path__, "STAGE", "superworkflow.stages", ("lib",))


def stage_names() -> list[str]:
    """Names of all stages that are installed; none is imported."""
    return _STAGES.names()


def is_shipped(name: str) -> bool:
    """True if the stage of this name is one of the project's own."""
    return name in _STAGES.shipped()


def stage_origins(name: str) -> list[str]:
    """Packages that define a stage of this name, for people."""
    return _STAGES.origins(name)


def load_stage(name: str) -> Stage[Any]:
    """The stage of this name. One of the project's own is never another's, whatever packages are installed.

    Raises:
        UserError: there is none (the message names the nearest one), several packages define it, or it cannot be
            imported.
    """
    return _STAGES.load_shipped(name) if is_shipped(name) else _STAGES.load(name)
