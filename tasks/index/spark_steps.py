"""Steps of the index that Spark computes in its own way: numbering, trimming, and the lengths of rows."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from superworkflow.tasks.index.trim import edge_rank
from superworkflow.tasks.lib.graph import csr

_PLACE_BITS = 33  # of `monotonically_increasing_id`: the number in a partition; the partition is above
_U = np.uint64


def number_vertices(degrees: Any) -> Any:
    """Vertices (id, node, degree) of (node, degree), sorted by ranges instead of in one task.

    The bounds of the ranges come from a sample of rows whose order is by chance, so another evaluation of the same
    plan would number vertices differently: the result is fixed.
    """
    from pyspark.sql import functions as f

    order = [f.col("degree").desc(), f.col("node").asc()]
    tasks = int(degrees.sparkSession.conf.get("spark.sql.shuffle.partitions"))
    ranged = kept(
        fixed(
            degrees.repartitionByRange(tasks, *order)
            .sortWithinPartitions(*order)
            .withColumn("place", f.monotonically_increasing_id())
        )
    )
    counts = ranged.groupBy(f.shiftright("place", _PLACE_BITS).alias("part")).count().collect()
    sizes = np.zeros(tasks, np.int64)
    for row in counts:
        sizes[row["part"]] = row["count"]
    firsts = f.array(*(f.lit(int(first)) for first in np.cumsum(sizes) - sizes))
    part = f.shiftright("place", _PLACE_BITS).cast("int")
    place = f.col("place").bitwiseAND(f.lit((1 << _PLACE_BITS) - 1))
    number = (f.element_at(firsts, part + 1) + place).cast("bigint")
    return ranged.select(number.alias("id"), "node", f.col("degree").cast("bigint").alias("degree"))


def fixed(relation: Any) -> Any:
    """The relation as the rows of one evaluation of its plan: partitions that are lost are computed again as they were.

    Spark finds a kept relation by comparing plans, misses it in some (where it is used twice in a union, say), and then
    evaluates it again; its bounds of ranges are drawn anew.
    """
    from pyspark.sql import DataFrame

    session = relation.sparkSession
    rows = session._jsparkSession.createDataFrame(relation._jdf.javaRDD(), relation._jdf.schema())
    return DataFrame(rows, session)


def kept(relation: Any) -> Any:
    """The relation, computed once and kept by the executors, on their disks beyond their memory."""
    from pyspark import StorageLevel

    return relation.persist(StorageLevel.MEMORY_AND_DISK)


def row_lengths(vertices: Any, edges: Any, directed: bool, untrimmed: bool) -> Any:
    """Vertices (id, node, degree, length): `length` is the number of arcs in the vertex's row.

    Args:
        vertices: id, node, degree.
        edges: u, v.
        directed: only u has the edge in its row.
        untrimmed: `degree` counts these edges.
    """
    from pyspark.sql import functions as f

    if untrimmed and not directed:
        return vertices.withColumn("length", f.col("degree"))
    one, none = f.lit(1).cast("bigint"), f.lit(0).cast("bigint")
    sources = edges.select(f.col("u").alias("id"), one.alias("first"), none.alias("second"))
    targets = edges.select(f.col("v").alias("id"), none.alias("first"), one.alias("second"))
    ends = sources.unionAll(targets).groupBy("id").agg(f.sum("first").alias("first"), f.sum("second").alias("second"))
    first, second = f.coalesce("first", none), f.coalesce("second", none)
    length = first if directed else first + second
    joined = vertices.drop("degree").join(ends, "id", "left")
    return joined.select("id", "node", (first + second).alias("degree"), length.alias("length"))


def trim(edges: Any, hubs: Any, directed: bool, max_degree: int, seed: int) -> Any:
    """The edges that stay when each hub keeps `max_degree` of its neighbours; see `tasks.index.trim`.

    Args:
        edges: u, v, perhaps weight; without direction u < v.
        hubs: id of the vertices above the limit.
        directed: only sources are asked.
        max_degree: the limit.
        seed: of the sample.
    """
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    pairs = edges.select("u", "v")
    owned = pairs.join(hubs, pairs["u"] == hubs["id"]).select("u", "v", f.col("id").alias("owner"))
    if not directed:
        owned = owned.unionAll(pairs.join(hubs, pairs["v"] == hubs["id"]).select("u", "v", f.col("id").alias("owner")))
    ranked = owned.mapInArrow(partial(_ranked, seed), "u bigint, v bigint, owner bigint, rank bigint")
    window = Window.partitionBy("owner").orderBy("rank", "u", "v")
    dropped = ranked.withColumn("place", f.row_number().over(window)).where(f.col("place") > max_degree)
    return edges.join(dropped.select("u", "v").distinct(), ["u", "v"], "left_anti").select(*edges.columns)


def _ranked(seed: int, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        edges = csr.pack(batch["u"].to_numpy(), batch["v"].to_numpy())
        # The order of unsigned words, in the signed ones that Spark has.
        rank = (edge_rank(edges, seed) ^ _U(1 << 63)).view(np.int64)
        yield pa.RecordBatch.from_arrays([*batch.columns, pa.array(rank)], [*batch.schema.names, "rank"])
