"""When a batch of ours is ready: what is compared with a peer's."""

import torch

from superworkflow.tasks.lib.gnn.model.network import Network, NetworkInputs
from superworkflow.tasks.lib.gnn.sampler.block import MiniBatch


@torch.no_grad()
def ready(network: Network, batch: MiniBatch, inputs: NetworkInputs) -> None:
    """Prepare the input of the first layer's product: unlike the peer's rows it includes neighbours' means."""
    block = batch.blocks[0]
    network.layers[0].read(network.inputs(0, block, network.first_rows(block, inputs), inputs))  # type: ignore[operator]
