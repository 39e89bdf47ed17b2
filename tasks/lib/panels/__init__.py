"""Panels of datasets that several superworkflows have, and their functions."""

from superworkflow.infra.contract.panel import Panel

_PROFILE = "superworkflow.tasks.lib.panels.graph_profile:profile"

GRAPH = Panel("index", _PROFILE, "graph", title="Graph")
TYPED_GRAPH = Panel("heterograph", _PROFILE, "graph", title="Graph")
LABELLED_GRAPH = Panel("heterograph", _PROFILE, "graph", title="Graph", others=("node_labels",))
CLASSES = Panel(
    "score", "superworkflow.tasks.score.panels:classes", "classes", title="Predictions", others=("correct", "infer"),
    optional=True,
)  # fmt: skip
LINKS = Panel(
    "score_links", "superworkflow.tasks.score_links.panels:links", "links", title="Links",
    others=("correct_links", "infer"), optional=True,
)  # fmt: skip
PREDICTED_LINKS = Panel(
    "predict_links", "superworkflow.tasks.predict_links.panels:likeliest", "predicted_links", title="Predicted links",
    optional=True,
)  # fmt: skip
PROJECTION = Panel(
    "infer", "superworkflow.tasks.lib.panels.node_projection:projection", "embeddings", title="Embeddings",
    others=("heterograph",),
)  # fmt: skip
