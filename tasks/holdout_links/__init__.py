"""Stage `holdout_links`: hide links of a typed graph, to validate and test a network that has learned on the others.

A link joins two nodes by an edge of one edge set (`edges`). Within one node set it has no direction. Hiding it takes
all edges between the two out of the graph, in this set and in those that reverse it, so that none passes messages.
Links are drawn uniformly, or are the latest ones (`by`), and as many pairs of nodes that no edge of the set joins are
drawn uniformly. In the graph of a bipartite edge list these pairs are of different sides. So they are where all edges
of an edge list join one of two sets of nodes with the other (`tasks.lib.graph.two_sides`); `link-sides.npy`, int8
[nodes], has the side of each node then, which training and ranking read.

Files: those of a heterograph dataset (see `tasks.lib.graph.heterograph`) with the same nodes, without the hidden edges;
`links.json`, which edge set; `links-validation.npy`, `links-test.npy`, `non-links-validation.npy` and
`non-links-test.npy`, int64 [pairs, 2], source and target, in random order; within one node set the smaller number comes
first. Where edges have a time `times-validation.npy` and `times-test.npy`, int64 [links], are the links' times.

Instead of drawn links a source may give them: rows `source,target,split` with the splits `validation` and `test`, and
perhaps `label`, 1 for a link and 0 for a pair to compare links with. Such links leave the graph if they are in it; all
other edges are trained on. Links stay as they are given, from source to target; `candidates-validation.npy` and
`candidates-test.npy` have all given pairs, and `non-links-…` as many of them as links, evenly spaced.

Links may have a direction within one node set (`directed`): both ways between two nodes are then held out together,
each as a link of its own if it is an edge, and pairs without one have a random direction.

Of all relations (`edges`) triples are held out, an edge of each in its direction, the same share of each relation's,
rounded down; relations with too few to test one are learned from alone. `links.json` is then `triples.json`, with their
edge sets, and instead of links there are `triples-validation.npy`, `triples-test.npy`, `non-triples-validation.npy` and
`non-triples-test.npy`, int64 [triples, 3], head, number of the relation, tail; of each triple in its place one of its
relation that the graph does not have. A source has rows `source,relation,target,split`.

The same for any number of threads.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from pydantic import Field, model_validator

from superworkflow.infra.contract.stage import Estimate, Input, Process, Resources, Stage, StageParams, Stats

ALL = "all"


class HoldoutLinksParams(StageParams):
    """Parameters of holding out links."""

    edges: str = Field(
        default="",
        description="Edge set whose links are predicted, not needed where there is one, or it and its reverse; all: "
        "the triples of all relations. Empty: all where several edge sets that reverse no other join the same node "
        "sets, as with triples.",
    )
    by: Literal["hash", "time"] = Field(
        default="hash",
        description="Which links are held out. hash: any, by a hash. time: the latest, by the earliest `time` of their "
        "edges; those that are tested are later than those that are validated on.",
    )
    time: str = Field(
        default="timestamp",
        description="Feature of edges that is their time, one whole number each, for `by` and `train.seed_time`; edge "
        "sets may lack it.",
    )
    directed: Literal["auto"] | bool = Field(
        default=False,
        description="Whether a link from one node to another of the same set is none back. auto: where the graph has "
        "the edges the other way round as a set of their own, as with heterograph.directed.",
    )
    test_share: float = Field(default=0.1, gt=0, lt=1, description="Share of the links to test, above 0 and below 1.")
    validation_share: float = Field(default=0.05, ge=0, lt=1, description="Share to validate on, 0 to below 1.")
    seed: int = Field(default=0, ge=0, lt=2**63, description="Seed of what is held out, 0 to 2**63 - 1.")

    @model_validator(mode="after")
    def _fit(self) -> HoldoutLinksParams:
        if self.test_share + self.validation_share >= 1:
            raise ValueError(
                "test_share and validation_share leave no links to train on: they must be below 1 together"
            )
        return self


_PROCESS = Process(start_s=0.9, memory_bytes=216 << 20)


def estimate(params: HoldoutLinksParams, inputs: Mapping[str, Stats], resources: Resources) -> Estimate:
    """Links are sorted once; features are copied."""
    graph = inputs.get("graph", {})
    edges, size = int(graph.get("edges") or 0), int(graph.get("bytes") or 0)
    links = edges // 2  # each has an edge either way
    rest = 1 - params.test_share - params.validation_share
    given = int(inputs.get("links", {}).get("bytes") or 0)
    return _PROCESS.estimate(
        memory_bytes=48 * edges + 8 * given,
        cpu_s=3e-7 * edges + 1e-9 * size,
        output_bytes=size,
        stats={
            **graph,
            **{name: round(int(graph[name] or 0) * rest) for name in ("edges", "reversed_edges") if name in graph},
            "links": links,
            "validation_links": int(links * params.validation_share),
            "test_links": int(links * params.test_share),
        },
        mapped_bytes=size,
    )


STAGE = Stage(
    name="holdout_links",
    version="2",
    params=HoldoutLinksParams,
    inputs={
        "graph": Input("heterograph dataset: the graph"),
        "links": Input(
            "links to validate and test: rows `source,target,split`, and perhaps `label`, 1 for a link and 0 for none; "
            "of all relations `source,relation,target,split`; CSV or TSV with a header, or Parquet, or a folder of "
            "part files",
            optional=True,
            file=True,
            parts=True,
        ),
    },
    run="superworkflow.tasks.holdout_links.run:run",
    estimate=estimate,
    help="hide links of a typed graph",
)
