"""Mini-batches of sampled subgraphs, for training; see `tasks._loader`."""

from superworkflow.tasks._loader.batch import Batch
from superworkflow.tasks._loader.subgraphs import Subgraphs

__all__ = ["Batch", "Subgraphs"]
