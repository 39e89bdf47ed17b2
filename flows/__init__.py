"""In which order: one file for each superworkflow, short enough to read as its diagram."""

from __future__ import annotations

import contextlib
import importlib
import pkgutil

from superworkflow.infra.diagram import Superworkflow
from superworkflow.infra.errors import UserError
from superworkflow.infra.params import nearest
from superworkflow.infra.placements import node_names
from superworkflow.tasks import stage_names


def superworkflow_names() -> list[str]:
    """Names of all superworkflows."""
    return sorted(m.name for m in pkgutil.iter_modules(__path__) if not m.name.startswith("_") and not m.ispkg)


def load_superworkflow(name: str) -> Superworkflow:
    """The superworkflow of this name.

    Raises:
        UserError: there is none; the message names the nearest one.
    """
    if name not in superworkflow_names():
        raise UserError("no such superworkflow", where=name, remedy=nearest(name, superworkflow_names()))
    found = importlib.import_module(f"superworkflow.flows.{name}").SUPERWORKFLOW
    assert isinstance(found, Superworkflow)
    return found


def known_names() -> set[str]:
    """Names that entries of profiles may have: of all stages, and of all nodes of all superworkflows."""
    names = set(stage_names())
    for name in superworkflow_names():
        with contextlib.suppress(UserError):  # one that cannot be used is no matter of this run
            names |= node_names(load_superworkflow(name))
    return names
