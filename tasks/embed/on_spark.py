"""Kernel `mllib` of stage `embed`: Word2Vec of Spark's MLlib, what a pipeline on one Spark cluster would train with.

It is there to be compared with. MLlib trains with hierarchical softmax on whole vectors of 64-bit floats, collects the
vocabulary and both tables on the driver, and sends them to all partitions in every epoch. Its vectors are others than
those of our kernels, which is why it is a parameter and not merely an engine.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from superworkflow.infra.dataset import Dataset
from superworkflow.infra.engines.spark.session import spark_session
from superworkflow.infra.engines.spark.tasks import spark_errors
from superworkflow.infra.errors import UserError
from superworkflow.infra.filesystem import Location
from superworkflow.infra.stage import Output, StageRun
from superworkflow.tasks._checks import check_walks
from superworkflow.tasks.embed import EmbedParams
from superworkflow.tasks.embed.run import write_embeddings

_SENTENCES = 4096
"""Walks that become text at a time."""


def run(job: StageRun[EmbedParams]) -> Output:
    """Train on `job.inputs["walks"]` with MLlib; see `tasks.embed.run`.

    Raises:
        UserError: another kernel is asked for, or what MLlib cannot do.
    """
    params, walks, vocabulary = job.params, job.inputs["walks"], job.inputs["vocabulary"]
    _check(job)
    remap = vocabulary.array("remap.npy")
    rows = int(np.count_nonzero(remap >= 0))
    names = walks.files("walks-*.npy")
    with spark_session(job) as session, spark_errors():
        from pyspark.ml.feature import Word2Vec
        from pyspark.ml.functions import vector_to_array
        from pyspark.sql import functions

        read = partial(_sentences, walks.uri, vocabulary.uri)
        text = session.sparkContext.parallelize(names, len(names)).flatMap(read)
        frame = session.createDataFrame(text.map(lambda line: (line,)), "line string")
        frame = frame.select(functions.split("line", " ").alias("walk")).repartition(params.partitions).cache()
        trained = Word2Vec(
            vectorSize=params.dimensions, windowSize=params.window, maxIter=params.epochs, minCount=0,
            numPartitions=params.partitions, stepSize=params.learning_rate, seed=params.seed,
            maxSentenceLength=max(1000, int(walks.stats.get("walk_length") or 0)), inputCol="walk", outputCol="vector",
        ).fit(frame)  # fmt: skip
        found = (
            trained.getVectors()
            .select("word", vector_to_array(functions.col("vector"), "float32").alias("vector"))
            .toArrow()
        )
    vectors = np.zeros((rows, params.dimensions), np.float32)
    flat = found["vector"].combine_chunks().flatten().to_numpy()
    vectors[found["word"].to_numpy().astype(np.int64)] = flat.reshape(len(found), params.dimensions)
    with job.output.file("embeddings.parquet") as path:
        write_embeddings(path, vectors, job.inputs["graph"], remap)
    return Output(
        rows=rows,
        stats={
            "rows": rows, "dimensions": params.dimensions, "vertices": len(remap), "matched": 0,
            "tokens": int(walks.stats["tokens"] or 0) * params.epochs, "kernel": params.kernel,
        },
    )  # fmt: skip


def _check(job: StageRun[EmbedParams]) -> None:
    params = job.params
    if params.kernel != "mllib":
        raise UserError(
            "this kernel does not run on Spark", where="embed.kernel", value=params.kernel,
            remedy="Set embed.kernel=mllib, or leave the stage's engine in-process",
        )  # fmt: skip
    if "initial" in job.inputs:
        raise UserError(
            "MLlib cannot start from earlier embeddings", where="embed.kernel", value="mllib",
            remedy="Drop --initial, or choose another kernel",
        )  # fmt: skip
    if "keep.npy" in job.inputs["vocabulary"]:
        raise UserError(
            "MLlib cannot subsample frequent vertices", where="embed.kernel", value="mllib",
            remedy="Set prepare.sample=0, or choose another kernel",
        )  # fmt: skip


def _sentences(walks: str, vocabulary: str, name: str) -> Iterator[str]:
    """Each walk of one shard as the rows of its kept vertices, in text."""
    remap: NDArray[Any] = Dataset.open(Location.of(vocabulary)).array("remap.npy")
    shard = Dataset.open(Location.of(walks)).array(name)
    for first in range(0, len(shard), _SENTENCES):
        block = np.asarray(shard[first : first + _SENTENCES])
        check_walks(f"{walks}/{name}", block, len(remap))
        rows = np.where(block >= 0, remap[block], -1)
        for line in rows:
            kept = line[line >= 0]
            if len(kept):
                yield " ".join(map(str, kept.tolist()))
