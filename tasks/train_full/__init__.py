"""Stage `train_full`: GCN or GAT trained on a whole graph, without sampling, in tasks on intervals of its vertices.

Forwards and backwards every layer is a few tasks of each interval (`whole_network`), which threads run as soon as what
they read is there (`pipeline`). Intervals are ranges of an order of the vertices (`vertex_order`) in which their arcs
are even, or which follows the parts of stage partition; files are by the graph's own numbers. On a worker group several
graph servers have some intervals each (`on_workers`). With `staleness=sync` gradients are summed in the order of the
intervals and dropout is a function of (seed, epoch, layer, vertex, column), so the weights are the same for any number
of threads and servers. Else what a gather reads depends on the time, and so do the weights, unless the clock is virtual
(`virtual_clock`). Each epoch has one update of the weights, by Adam, or with `updates=interval` one for each interval.

GCN's first layer reads sums of neighbours' features that stage aggregate made once; its dropout comes after them. Kept
are the weights of the epoch with the lowest loss on what is validated on, or with the best figure there.

Files: `model.safetensors` and `network.json`, weights and what they are of, as stage train writes them; `splits.npy`
int8 [nodes], 0 to 2 for train, validation and test, -1 for none; `history.parquet`, a row for each epoch with `epoch`,
`loss` and figures of validation; `timeline.parquet`, a row for each task since the training was begun or resumed, see
`timeline.TimelineRow`.
"""

from superworkflow.infra.contract.stage import Input, Stage
from superworkflow.tasks.train_full.estimates import estimate
from superworkflow.tasks.train_full.params import TrainFullParams

STAGE = Stage(
    name="train_full",
    version="6",
    params=TrainFullParams,
    inputs={
        "graph": Input("heterograph dataset: the graph with features and labels"),
        "labels": Input("node_labels dataset: labels of an edge list's nodes", optional=True),
        "sums": Input("aggregate dataset, made with form=gcn: sums of neighbours' features", optional=True),
        "parts": Input("partition dataset: parts of the graph, along which intervals are", optional=True),
    },
    run="superworkflow.tasks.train_full.run:run",
    estimate=estimate,
    engines={"workers": "superworkflow.tasks.train_full.on_workers:run"},
    image="torch",
    help="train a graph neural network on the whole graph, without sampling",
    steps=lambda params: params.most_epochs,
)
