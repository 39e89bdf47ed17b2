"""In OGB's environment: what its own reader finds in a raw folder, as one `.npz` file.

in_ogb_reads.py RAW OUT
"""

import importlib
import sys
import types
from pathlib import Path

import numpy as np
import ogb

# The package's own `__init__` imports torch, for what is not needed here.
package = types.ModuleType("ogb.io")
package.__path__ = [str(Path(ogb.__file__).parent / "io")]
sys.modules["ogb.io"] = package
reader = importlib.import_module("ogb.io.read_graph_raw")

raw, out = sys.argv[1:3]
graph = reader.read_csv_heterograph_raw(raw, additional_node_files=["node_year"])[0]
found = {f"edges/{'/'.join(triplet)}": pairs for triplet, pairs in graph["edge_index_dict"].items()}
for name, value in graph["node_feat_dict"].items():
    found[f"feat/{name}"] = value
for name, value in graph["node_year"].items():
    found[f"year/{name}"] = value
np.savez(out, **found)
