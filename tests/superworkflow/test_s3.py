"""A superworkflow whose store is a bucket."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

from infra.filesystem import Location
from infra.store import Store
from tests.conftest import SECRET

SMALL = ["walk.num_walks=1", "walk.walk_length=10", "embed.dimensions=8", "node2vec.link_prediction=false"]


def _run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    (folder / "temporary").mkdir(exist_ok=True)
    return subprocess.run(
        [sys.executable, "-m", "superworkflow", *arguments],
        cwd=folder, env=os.environ | {"TMPDIR": str(folder / "temporary")}, capture_output=True, text=True, timeout=300,
    )  # fmt: skip


def test_run_then_plan(s3_store: Store, tmp_path: Path) -> None:
    """Source, datasets and export are in the bucket; credentials are in the environment alone."""
    pairs = np.random.default_rng(0).integers(0, 60, (400, 2))
    edges = s3_store.root.join("input", "edges.csv")
    edges.write_atomic("".join(f"v{u},v{v}\n" for u, v in pairs))
    given = ["node2vec", "--edges", edges.uri, "--store", f"{s3_store.uri}/store", "--set", *SMALL]
    done = _run(tmp_path, "run", *given, "--no-tracking", "--export", "word2vec", "--json")
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert {stage["state"] for stage in document["stages"]} == {"ran"}

    with Location.of(document["embeddings"]).open() as stream:
        embeddings = pq.read_table(io.BytesIO(stream.read()))
    assert set(embeddings["node"].to_pylist()) == {f"v{vertex}" for pair in pairs for vertex in pair}
    assert Location.of(document["export_word2vec"]).read_text().startswith(f"{len(embeddings)} 8\n")

    planned = json.loads(_run(tmp_path, "plan", *given, "--json").stdout)
    assert {stage["state"] for stage in planned} == {"cached"}

    names = s3_store.root.walk_files()
    assert len([name for name in names if name.endswith("manifest.json")]) == len(document["stages"])
    assert not [name for name in names if ".lease" in name or "_checkpoint" in name]
    for name in names:
        with s3_store.root.join(name).open() as stream:
            assert SECRET.encode() not in stream.read()
    assert SECRET not in done.stdout + done.stderr
    assert not list((tmp_path / "temporary").glob("superworkflow-*"))
