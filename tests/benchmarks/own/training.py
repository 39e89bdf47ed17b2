"""Our skip-gram training on stage datasets, by the embed stage's own loop and kernel.

    python -m tests.benchmarks.own.training WALKS VOCABULARY
    {"dimensions", "window", "negative", "threads", "seed", "out"} -> {"tokens", "wall_s", "cpu_s"}

Timed: random initial tables, one epoch over the shards, the checkpoint at its end. Vectors go to the file `out`, by
vertex.
"""

import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from superworkflow.infra.contract.progress import Progress
from superworkflow.infra.storage.dataset import Dataset
from superworkflow.tasks.embed import EmbedParams
from superworkflow.tasks.embed.run import make_kernel
from superworkflow.tasks.embed.tables import EmbeddingPosition, EmbeddingTables
from superworkflow.tasks.embed.train import Vocabulary, train
from tests.benchmarks.peers.serving import Clock, serve

walks, vocabulary = (Dataset.open(uri) for uri in sys.argv[1:3])
vertices = int(walks.stats["vertices"] or 0)
words = Vocabulary.read(vocabulary, vertices)


def prepare() -> dict[str, Any]:
    few = np.ascontiguousarray(walks.array(walks.files("walks-*.npy")[0])[:8])
    params = EmbedParams()
    make_kernel(make_tables(params), words, params, 1).train(few, 0, 0, 0.01, 0.01)  # loads the compiled kernel
    return {}


def make_tables(params: EmbedParams) -> EmbeddingTables:
    return EmbeddingTables.random(len(words.threshold), params.dimensions, params.seed, params.optimizer == "adagrad")


def answer(request: dict[str, Any]) -> dict[str, Any]:
    params = EmbedParams(**{name: request[name] for name in ("dimensions", "window", "negative", "seed")})
    with tempfile.TemporaryDirectory() as folder:
        with Clock() as clock:
            tables = make_tables(params)
            kernel = make_kernel(tables, words, params, request["threads"])
            train(
                kernel,
                tables,
                walks,
                vertices,
                params,
                EmbeddingPosition(),
                Path(folder),
                lambda: None,
                Progress("embed"),
            )
    vectors = np.zeros((len(words.remap), params.dimensions), np.float32)
    kept = words.remap >= 0
    vectors[kept] = tables.centre[words.remap[kept]]
    np.save(request["out"], vectors)
    return {"tokens": int(walks.stats["tokens"] or 0), **clock.seconds()}


serve(answer, prepare)
