"""File formats: NumPy arrays, TFRecord and tf.train.Example, Parquet."""

IN_MEMORY = {
    name: f"superworkflow.tasks.lib.formats.in_memory:{function}"
    for name, function in {
        "edges": "edges",
        "features": "features",
        "labels": "labels",
        "lattice": "array",
        "vertices": "labels",
    }.items()
} | {"graph": "superworkflow.tasks.lib.typed_tables:graph"}
"""Converters of values in memory by the name of the source; see `Superworkflow.in_memory`."""
