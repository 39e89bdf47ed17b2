"""Mini-batches of subgraphs for training: read from a dataset or sampled on demand, bit for bit the same.

    from superworkflow.loader import Subgraphs

    subgraphs = Subgraphs("store/heterograph/…", "store/sample/…")
    for epoch in range(10):
        for batch in subgraphs.batches(64, seed=1, epoch=epoch):
            data = batch.to_pyg()  # or batch.to_dgl(), or its tensors as they are

Features come from the heterograph's memory-mapped files, so that all processes of a machine share one copy. A batch is
what its number in the epoch says, however many workers and ranks share the batches.
"""

from superworkflow.loader.batch import Batch
from superworkflow.loader.subgraphs import Subgraphs

__all__ = ["Batch", "Subgraphs"]
