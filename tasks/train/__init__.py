"""Stage `train`: a graph neural network that predicts classes or numbers of nodes, or links, in mini-batches.

A step's batch is a function of (seed, epoch, step): `tasks.lib.gnn`. Whatever prepares batches ahead, and whenever an
attempt was killed, the same blocks are drawn; with one thread the same weights come out, bit by bit.

Where stage holdout_links has held links out of the graph they are what is learned, else classes or numbers of nodes.
Loss is cross entropy; of numbers the squared error, in deviations of the training nodes; of links binary cross entropy
of these and of pairs that are drawn anew in each step, a function of (seed, epoch, step, link). The edges of a step's
links pass no messages in that step; as these are at most an eighth of all links, others do.

Dense weights are trained by Adam, embeddings of nodes without features by its sparse form or by Adagrad. The weights
that are kept are those of the epoch with the lowest loss on what is validated on, or with the best figure there.

Files: `model.safetensors` and `network.json`, weights and what they are of; of classes `splits.npy` int8 [nodes], 0 to
2 for train, validation and test, -1 for none; `losses.parquet` with columns `epoch`, `step`, `loss`; `history.json`, a
row for each epoch.
"""

from superworkflow.infra.contract.stage import Input, Stage
from superworkflow.tasks.train.defaults import AUTO, MOST_EPOCHS
from superworkflow.tasks.train.estimates import estimate, estimate_on_workers
from superworkflow.tasks.train.params import TrainParams

STAGE = Stage(
    name="train",
    version="15",
    params=TrainParams,
    inputs={
        "graph": Input("heterograph dataset: the graph with features and labels"),
        "labels": Input("node_labels dataset: labels of an edge list's nodes", optional=True),
        "sums": Input("aggregate dataset: means of neighbours' features", optional=True),
        "shards": Input("shard dataset: the same graph in parts, for workers", optional=True, affects_result=False),
        "subgraphs": Input("sample dataset: subgraphs around the seeds, and their splits", optional=True),
    },
    run="superworkflow.tasks.train.run:run",
    engines={"workers": "superworkflow.tasks.train.on_workers:run"},
    check="superworkflow.tasks.lib.device:check_device",
    estimate=estimate,
    estimates={"workers": estimate_on_workers},
    image="torch",
    needs=("torch", "safetensors"),
    help="train a graph neural network in mini-batches",
    steps=lambda params: MOST_EPOCHS if params.epochs == AUTO else params.epochs,
)
