"""Operators of torch-sparse, with which torch_geometric's NeighborLoader samples.

Only they are compiled, from the release's own source and with its own flags, when they are not there: the whole
package, and torch-scatter that it imports, take half an hour.
"""

import os
import subprocess
import sys
import tarfile
from pathlib import Path

import torch
import torch_geometric.typing

SOURCE = "torch_sparse-0.6.18"
BUILT = Path(sys.prefix) / "neighbor_sample"
LIBRARY = BUILT / "neighbor_sample.so"


def build() -> None:
    """Compile the sampler."""
    from torch.utils.cpp_extension import load

    BUILT.mkdir(exist_ok=True)
    name, _, version = SOURCE.partition("-")
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-build-isolation", "--no-binary=:all:"]
    subprocess.run([*pip, "--dest", str(BUILT), f"{name}=={version}"], check=True, stdout=2)
    with tarfile.open(BUILT / f"{SOURCE}.tar.gz") as archive:
        archive.extractall(BUILT, filter="data")
    source = BUILT / SOURCE
    os.environ |= {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "MAX_JOBS": "1"}
    load(
        "neighbor_sample",
        [str(source / "csrc" / each) for each in ("neighbor_sample.cpp", "cpu/neighbor_sample_cpu.cpp")],
        extra_cflags=["-O3", "-Wno-sign-compare", "-DAT_PARALLEL_OPENMP", "-fopenmp"],
        extra_include_paths=[str(source / "csrc"), str(source / "third_party" / "parallel-hashmap")],
        build_directory=str(BUILT), is_python_module=False,
    )  # fmt: skip


def load_operator() -> None:
    """Have torch_geometric find them, compiled if need be."""
    if not LIBRARY.exists():
        build()
    torch.ops.load_library(str(LIBRARY))
    torch_geometric.typing.WITH_TORCH_SPARSE = True  # what it needs of it is there
