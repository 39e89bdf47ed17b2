"""Library of mini-batch training: the graph as it is learned on, batches, networks and their files.

A mini-batch is a function of (seed, epoch, step) alone: targets, neighbours and dropout masks come from a hash of these
with hop, edge set and node number (`random_streams`). Threads, workers, order and restarts do not change its blocks.

A node receives messages from the targets of its edges, in every edge set that starts at its node set, as `sample` and
`probe` follow them. A schema that has an edge set in both directions names it twice, once as reversed.
"""

import os

# Huge pages for torch's large arrays: every step allocates them anew, and the first touch of small pages costs a fifth
# of the step. torch reads the variable when it is imported, by modules of this package.
os.environ.setdefault("THP_MEM_ALLOC_ENABLE", "1")
