"""The superworkflow of a vertex program that learns factors from ratings: one function makes it of any."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from superworkflow.infra.base.errors import UserError
from superworkflow.infra.base.import_strings import imported
from superworkflow.infra.contract.diagram import Diagram, Node
from superworkflow.infra.contract.metrics import Metric
from superworkflow.infra.contract.outcomes import Model, Rescoring
from superworkflow.infra.contract.stage import Stage
from superworkflow.infra.contract.superworkflow import Superworkflow
from superworkflow.infra.storage.dataset import Dataset
from superworkflow.infra.storage.source import Source
from superworkflow.tasks import colour, index, publish_latent_factors, recommend, score_ratings, time_slices
from superworkflow.tasks.index.two_sets import RatingsParams
from superworkflow.tasks.lib import panels
from superworkflow.tasks.lib.formats import IN_MEMORY
from superworkflow.tasks.lib.vertex.program import VertexProgram

READ = replace(index.STAGE, params=RatingsParams)


def ratings_superworkflow(program: VertexProgram, stage: Stage[Any]) -> Superworkflow:
    """Index, colour, the program, publish_latent_factors, recommend; score_ratings if ratings are held out.

    Args:
        program: what runs; its `factor` of users and items has their ratings as products. If it reads `slice` of edges,
            its parameter `slices` divides time, from 2 on by stage time_slices.
        stage: its stage.
    """

    def diagram(flow: Diagram, edges: Source, test: Source | None = None) -> None:
        """Index, colour, the program, publish_latent_factors, recommend; score_ratings if ratings are held out."""
        graph = flow.stage(READ, edges=edges)
        colours, slices = flow.stage(colour.STAGE, graph=graph), None
        if timed and flow.parameter(f"{program.name}.slices") > 1:
            if flow.parameter("index.time") is None:
                raise UserError("slices of time need times", where=f"{program.name}.slices",
                                value=flow.parameter(f"{program.name}.slices"),
                                remedy="Name the column of times with --set index.time=COLUMN")  # fmt: skip
            slices = flow.stage(time_slices.STAGE, graph=graph, edges=edges)
            if test is not None:
                imported("superworkflow.tasks.score_ratings.times:check_times")(graph.params, edges, test)
        values = flow.stage(stage, graph=graph, colours=colours, arcs=slices)
        factors = flow.stage(publish_latent_factors.STAGE, graph=graph, values=values, slices=slices)
        flow.stage(recommend.STAGE, factors=factors)
        if test is not None:
            flow.stage(score_ratings.STAGE, graph=graph, values=values, slices=slices, test=test)

    def again(flow: Diagram, nodes: Mapping[str, Node], model: Mapping[str, Dataset]) -> tuple[Node, Node] | None:
        """Score the champion and this run's factors on held-out ratings that the champion has not learned."""
        if not {"index", program.name} <= set(model):
            return None
        own, seen = nodes["score_ratings"].inputs, model["index"]
        champion = flow.stage(
            score_ratings.STAGE, name="champion-score", graph=seen, seen=seen, values=model[program.name],
            slices=model.get("time_slices"), test=own["test"],
        )  # fmt: skip
        return champion, flow.stage(
            score_ratings.STAGE, name="challenger-score", graph=own["graph"], seen=seen, values=own["values"],
            slices=own.get("slices"), test=own["test"],
        )  # fmt: skip

    timed = "slice" in program.arc_fields

    return Superworkflow(
        name=program.name,
        help=program.help,
        stages=(
            READ, colour.STAGE, *([time_slices.STAGE] if timed else []), stage, publish_latent_factors.STAGE,
            recommend.STAGE, score_ratings.STAGE,
        ),
        sources={
            "edges": "ratings: rows user, item, rating as CSV, TSV, whitespace-separated or Parquet, optionally "
            "gzipped; or a folder of part files",
            "test": "held-out ratings in the form of the others, to judge the predictions",
        },
        optional=frozenset({"test"}),
        diagram=diagram,
        options=program.params,
        in_memory=IN_MEMORY,
        outputs={
            "users": ("publish_latent_factors", "users.parquet"),
            "items": ("publish_latent_factors", "items.parquet"),
            "recommendations": ("recommend", "recommendations.parquet"),
            "trace": (program.name, "trace.parquet"),
        },
        outcomes=(
            Metric(
                "score_ratings", "rmse@test", "minimize", headline=True, source="test", optional=True,
                baselines="score_ratings",
            ),
            Metric("score_ratings", "mae@test", "minimize", source="test", optional=True, baselines="score_ratings"),
            panels.GRAPH,
            Model(
                "publish_latent_factors", code="superworkflow.tasks.publish.serving",
                card="superworkflow.tasks.publish_latent_factors.model:card", name=f"{program.name}-ratings",
                rescore=Rescoring("score_ratings", ("index", program.name, *(["time_slices"] if timed else [])), again),
            ),
        ),
    )  # fmt: skip
