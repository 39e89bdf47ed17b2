"""Word2Vec of Spark MLlib on a local master with two threads, from a file of walks.

    mllib_train.py WALKS.txt VERTICES
    {"dimensions", "window", "seed", "out"} -> {"tokens", "wall_s", "cpu_s"}

`fit` alone is timed, on walks that are cached in memory, after a small fit that warms the JVM. CPU seconds are those
of this process and the JVM. MLlib trains with hierarchical softmax; one partition, its default, keeps its quality.
"""

import sys
import time

import numpy as np
import psutil
from pyspark.ml.feature import Word2Vec
from pyspark.sql import DataFrame, SparkSession, functions
from serving import serve

WALKS, VERTICES = sys.argv[1], int(sys.argv[2])
walks: DataFrame
tokens = 0


def prepare() -> dict:
    global walks, tokens
    settings = {
        "spark.ui.enabled": "false", "spark.driver.memory": "4g", "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1", "spark.ui.showConsoleProgress": "false",
    }  # fmt: skip
    spark = SparkSession.builder.master("local[2]").config(map=settings).getOrCreate()
    walks = spark.read.text(WALKS).select(functions.split("value", " ").alias("walk")).repartition(2).cache()
    tokens = walks.select(functions.sum(functions.size("walk"))).first()[0]
    model(32, 5, 1).fit(walks.limit(500))
    return {"tokens": tokens}


def model(dimensions: int, window: int, seed: int) -> Word2Vec:
    return Word2Vec(
        vectorSize=dimensions, windowSize=window, maxIter=1, minCount=0, numPartitions=1, seed=seed,
        inputCol="walk", outputCol="vector",
    )  # fmt: skip


def cpu_seconds() -> float:
    me = psutil.Process()
    return sum(sum(process.cpu_times()[:2]) for process in [me, *me.children(recursive=True)])


def answer(request: dict) -> dict:
    wall, cpu = time.perf_counter(), cpu_seconds()
    fitted = model(request["dimensions"], request["window"], request["seed"]).fit(walks)
    seconds = {"wall_s": time.perf_counter() - wall, "cpu_s": cpu_seconds() - cpu}
    vectors = np.zeros((VERTICES, request["dimensions"]), np.float32)
    for row in fitted.getVectors().collect():
        vectors[int(row.word)] = row.vector.toArray()
    np.save(request["out"], vectors)
    return {"tokens": tokens, **seconds}


serve(answer, prepare)
