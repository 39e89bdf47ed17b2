"""Tables of OGBN-MAG's schema and of a part of its sizes, and some of its papers as seeds."""

import shutil
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

from superworkflow.tasks.lib.generators.mag import generate_mag
from tests.benchmarks.code import kept_folder, key
from tests.benchmarks.setting import Setting

PAPERS = 736_389


def mag_tables(setting: Setting, scale: float) -> Path:
    """The folder of the tables, their schema and spec."""
    tables = kept_folder(setting.data, "mag-tables", key(("superworkflow.tasks.lib.generators.mag",), scale=scale))
    if not (tables / "schema.pbtxt").exists():
        shutil.rmtree(tables, ignore_errors=True)
        generate_mag(scale, tables, 5)
    return tables


def write_seeds(tables: Path, count: int, path: Path) -> Path:
    """Table of `count` random papers."""
    ids = pq.read_table(next(iter(sorted(tables.glob("nodes-paper*.parquet")))), columns=["id"])["id"]
    chosen = np.random.default_rng(1).choice(len(ids), count, replace=False)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("id\n" + "".join(f"{ids[row].as_py()}\n" for row in chosen.tolist()))
    return path
