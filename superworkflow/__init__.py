"""Superworkflow: graph-learning pipelines in which every stage chooses its own engine, image and resources.

Names that authors of stages and superworkflows need are imported from here, each when it is first used:

    from superworkflow import Diagram, Input, Metric, Output, Source, Stage, StageParams, StageRun, Superworkflow

Programs and notebooks run superworkflows by functions of this module: `import superworkflow as sw; sw.run(…)`; see
`superworkflow.interface`.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from superworkflow.version import __version__

if TYPE_CHECKING:
    from pydantic import Field as Field

    from superworkflow.calls import deploy as deploy
    from superworkflow.calls import predict as predict
    from superworkflow.calls import sweep as sweep
    from superworkflow.cells import define as define
    from superworkflow.cells import stage as stage
    from superworkflow.infra.base.errors import SuperworkflowError as SuperworkflowError
    from superworkflow.infra.base.errors import UserError as UserError
    from superworkflow.infra.contract.diagram import Diagram as Diagram
    from superworkflow.infra.contract.diagram import Node as Node
    from superworkflow.infra.contract.estimate import Estimate as Estimate
    from superworkflow.infra.contract.metrics import Metric as Metric
    from superworkflow.infra.contract.outcomes import Drift as Drift
    from superworkflow.infra.contract.outcomes import Model as Model
    from superworkflow.infra.contract.outcomes import ModelCard as ModelCard
    from superworkflow.infra.contract.outcomes import Picture as Picture
    from superworkflow.infra.contract.outcomes import Rescoring as Rescoring
    from superworkflow.infra.contract.panel import Panel as Panel
    from superworkflow.infra.contract.panel import packed as packed
    from superworkflow.infra.contract.panel import plot as plot
    from superworkflow.infra.contract.panel import points as points
    from superworkflow.infra.contract.panel import table as table
    from superworkflow.infra.contract.params import StageParams as StageParams
    from superworkflow.infra.contract.resources import Resources as Resources
    from superworkflow.infra.contract.stage import Input as Input
    from superworkflow.infra.contract.stage import Output as Output
    from superworkflow.infra.contract.stage import Stage as Stage
    from superworkflow.infra.contract.stage import StageRun as StageRun
    from superworkflow.infra.contract.superworkflow import Export as Export
    from superworkflow.infra.contract.superworkflow import Flag as Flag
    from superworkflow.infra.contract.superworkflow import Superworkflow as Superworkflow
    from superworkflow.infra.storage.dataset import Dataset as Dataset
    from superworkflow.infra.storage.source import Source as Source
    from superworkflow.interface import compare as compare
    from superworkflow.interface import explain as explain
    from superworkflow.interface import load as load
    from superworkflow.interface import models as models
    from superworkflow.interface import plan as plan
    from superworkflow.interface import promote as promote
    from superworkflow.interface import rollback as rollback
    from superworkflow.interface import run as run
    from superworkflow.interface import runs as runs
    from superworkflow.results import Result as Result
    from superworkflow.results import Run as Run
    from superworkflow.results import Study as Study
    from superworkflow.tasks.lib.vertex.program import AT_REST as AT_REST
    from superworkflow.tasks.lib.vertex.program import ProgramParams as ProgramParams
    from superworkflow.tasks.lib.vertex.program import Sync as Sync
    from superworkflow.tasks.lib.vertex.program import VertexProgram as VertexProgram
    from superworkflow.tasks.lib.vertex.program import keep_fields as keep_fields

__all__ = ["__version__"]

_MODULES = {
    "pydantic": ("Field",),
    "superworkflow.infra.base.errors": ("SuperworkflowError", "UserError"),
    "superworkflow.infra.contract.diagram": ("Diagram", "Node"),
    "superworkflow.infra.contract.estimate": ("Estimate",),
    "superworkflow.infra.contract.metrics": ("Metric",),
    "superworkflow.infra.contract.outcomes": ("Drift", "Model", "ModelCard", "Picture", "Rescoring"),
    "superworkflow.infra.contract.panel": ("Panel", "packed", "plot", "points", "table"),
    "superworkflow.infra.contract.params": ("StageParams",),
    "superworkflow.infra.contract.resources": ("Resources",),
    "superworkflow.infra.contract.stage": ("Input", "Output", "Stage", "StageRun"),
    "superworkflow.infra.contract.superworkflow": ("Export", "Flag", "Superworkflow"),
    "superworkflow.infra.storage.dataset": ("Dataset",),
    "superworkflow.infra.storage.source": ("Source",),
    "superworkflow.cells": ("define", "stage"),
    "superworkflow.calls": ("deploy", "predict", "sweep"),
    "superworkflow.interface": ("compare", "explain", "load", "models", "plan", "promote", "rollback", "run", "runs"),
    "superworkflow.results": ("Result", "Run", "Study"),
    "superworkflow.tasks.lib.vertex.program": ("VertexProgram", "ProgramParams", "Sync", "AT_REST", "keep_fields"),
}
_HOMES = {name: module for module, names in _MODULES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value = getattr(importlib.import_module(_HOMES[name]), name)
    return value


def load_ipython_extension(shell: Any) -> None:
    """`%load_ext superworkflow`: the cell magic of `superworkflow.cells`."""
    importlib.import_module("superworkflow.cells").load_magic(shell)


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
