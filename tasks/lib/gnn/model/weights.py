"""Files of a trained network: its weights and embeddings."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from superworkflow.infra.base.errors import DatasetDamaged
from superworkflow.infra.storage.dataset import Dataset
from superworkflow.tasks.lib.formats.safetensors import read_tensors, write_tensors
from superworkflow.tasks.lib.gnn.model.config import NetworkConfig
from superworkflow.tasks.lib.gnn.model.network import Network

WEIGHTS_FILE = "model.safetensors"


def table_name(key: str) -> str:
    """Name of the embeddings among the weights, by their key in `Network.embedded`."""
    return f"embeddings.{key}.weight"


def write_weights(path: Path, weights: Mapping[str, NDArray[Any]]) -> None:
    """Write weights as safetensors; see `Network.arrays`."""
    write_tensors(path, weights, {"format": "pt"})


def read_network(dataset: Dataset, shape: NetworkConfig, tables: bool = True) -> Network:
    """Read the trained network of a dataset of stage train.

    Args:
        dataset: the dataset.
        shape: configuration of the network.
        tables: hold the embeddings of nodes without features.

    Raises:
        DatasetDamaged: the weights are another network's.
    """
    network = Network(shape, 0, tables)
    left = () if tables else set(map(table_name, network.embedded.values()))
    try:
        arrays = read_tensors(dataset.local(WEIGHTS_FILE), mapped=True)
        network.load_arrays({name: values for name, values in arrays.items() if name not in left})
    except (ValueError, KeyError, TypeError, OSError) as error:
        raise _unreadable(dataset, error) from None
    return network


def read_embeddings(dataset: Dataset, shape: NetworkConfig) -> dict[str, NDArray[np.float32]]:
    """Trained embeddings of a dataset of stage train by node set, float32 [nodes, width], mapped.

    Raises:
        DatasetDamaged: the embeddings are another network's.
    """
    found = {}
    for key, name in enumerate(shape.embedded()):
        try:
            values = read_tensors(dataset.local(WEIGHTS_FILE), mapped=True)[table_name(str(key))]
            if values.shape != (max(1, shape.nodes[name]), shape.hidden) or values.dtype != np.float32:
                raise ValueError("embeddings of another network")
        except (ValueError, KeyError, TypeError, OSError) as error:
            raise _unreadable(dataset, error) from None
        found[name] = values[: shape.nodes[name]]
    return found


def _unreadable(dataset: Dataset, error: Exception) -> DatasetDamaged:
    return DatasetDamaged(f"weights cannot be read: {error}", where=f"{dataset.uri}/{WEIGHTS_FILE}",
                          remedy="Remove this dataset, and its stage will make it again")  # fmt: skip
