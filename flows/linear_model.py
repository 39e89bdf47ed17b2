"""The superworkflow of a vertex program that learns a linear model from samples and features."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from superworkflow.infra.contract.diagram import Diagram
from superworkflow.infra.contract.metrics import Metric
from superworkflow.infra.contract.stage import Stage
from superworkflow.infra.contract.superworkflow import Superworkflow
from superworkflow.infra.storage.source import Source
from superworkflow.tasks import colour, feature_graph, publish_coefficients, score_samples
from superworkflow.tasks.feature_graph import SamplesParams
from superworkflow.tasks.lib.formats import IN_MEMORY
from superworkflow.tasks.lib.vertex.program import VertexProgram


def linear_superworkflow(
    program: VertexProgram, stage: Stage[Any], samples: type[SamplesParams], outcomes: tuple[Metric, ...]
) -> Superworkflow:
    """Feature_graph, colour, the program, publish_coefficients; score_samples if samples are held out.

    Args:
        program: what runs.
        stage: its stage.
        samples: parameters with which the samples are read.
        outcomes: figures on held-out samples.
    """
    read = replace(feature_graph.STAGE, params=samples)

    def diagram(flow: Diagram, samples: Source, test: Source | None = None) -> None:
        """Feature_graph, colour, the program, publish_coefficients; score_samples if samples are held out."""
        graph = flow.stage(read, samples=samples)
        values = flow.stage(stage, graph=graph, colours=flow.stage(colour.STAGE, graph=graph))
        flow.stage(publish_coefficients.STAGE, graph=graph, values=values)
        if test is not None:
            flow.stage(score_samples.STAGE, graph=graph, values=values, test=test)

    return Superworkflow(
        name=program.name,
        help=program.help,
        stages=(read, colour.STAGE, stage, publish_coefficients.STAGE, score_samples.STAGE),
        sources={
            "samples": "samples in a table, CSV or Parquet, or in the svmlight (libsvm) format, label index:value …, "
            "optionally gzipped",
            "test": "further samples in the same form, to be predicted and, where they have labels, judged",
        },
        optional=frozenset({"test"}),
        diagram=diagram,
        options=program.params,
        in_memory=IN_MEMORY,
        outputs={
            "coefficients": ("publish_coefficients", "coefficients.parquet"),
            "model": ("publish_coefficients", "model.json"),
            "trace": (program.name, "trace.parquet"),
            "predictions": ("score_samples", "predictions.parquet"),
        },
        outcomes=outcomes,
    )
