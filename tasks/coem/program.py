"""CoEM: classes of nouns from their contexts, and of contexts from their nouns, where those of some are known.

Jones ("Learning to Extract Entities from Labeled and Unlabeled Text", 2005), as in GraphLab (Low et al., UAI 2010):
a node's distribution over the classes is the mean of its neighbours' by how often they occur together, and seeds keep
theirs. That is label propagation on two node sets, which take turns.
"""

from __future__ import annotations

from dataclasses import replace

from superworkflow.tasks.label_propagation.program import PROGRAM as LABEL_PROPAGATION

PROGRAM = replace(
    LABEL_PROPAGATION, name="coem", fields={**LABEL_PROPAGATION.fields, "side": "int32"}, graph_fields=("side",),
    help="classes of nouns and contexts, or other two node sets, from the classes of some",
)  # fmt: skip
