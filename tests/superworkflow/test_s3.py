"""A superworkflow whose store is a bucket."""

import io
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from superworkflow.infra.contract.progress import parse_event
from superworkflow.infra.storage.location import Location
from superworkflow.infra.storage.store import Store
from tests import warm
from tests.s3_proxy import S3Proxy

SMALL = ["walk.num_walks=1", "walk.walk_length=10", "embed.dimensions=8", "node2vec.link_prediction=false"]


def _run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    (folder / "temporary").mkdir(exist_ok=True)
    return warm.run(arguments, cwd=folder, env=os.environ | {"TMPDIR": str(folder / "temporary")}, timeout=300)


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
            assert os.environ["AWS_SECRET_ACCESS_KEY"].encode() not in stream.read()
    assert os.environ["AWS_SECRET_ACCESS_KEY"] not in done.stdout + done.stderr
    assert not list((tmp_path / "temporary").glob("superworkflow-*"))


def _index(folder: Path, edges: str, output: str) -> subprocess.Popen[str]:
    """The stage `index` by itself, as a launcher starts it."""
    return subprocess.Popen(
        [sys.executable, "-m", "superworkflow", "stage", "index", "--events", "--input", f"edges={edges}",
         "--output", output],
        cwd=folder, env=os.environ | {"TMPDIR": str(folder)}, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip


def _lease(store: Store) -> list[str]:
    return [name for name in store.root.walk_files() if ".lease" in name]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_stage_after_one_that_was_ended_does_not_wait(
    s3_store: Store, s3_proxy: S3Proxy, tmp_path: Path, number: signal.Signals
) -> None:
    s3_store.root.join("edges.csv").write_atomic("a,b\nb,c\n")
    edges, output = s3_store.root.join("edges.csv").uri, s3_store.location("index", "0" * 32).uri
    s3_proxy.trip = (b"PUT /superworkflow-tests/" + f"{s3_store.root.name}/index/{'0' * 32}/".encode(), "busy", 5.0)
    ended = _index(tmp_path, edges, output)
    assert s3_proxy.tripped.wait(120)
    assert ended.poll() is None
    if number == signal.SIGTERM:
        s3_proxy.set("pass")
    ended.send_signal(number)
    said, _ = ended.communicate(timeout=60)
    assert "Traceback" not in said
    assert ended.returncode == (143 if number == signal.SIGTERM else -number)
    s3_proxy.set("pass")
    assert len(_lease(s3_store)) == (0 if number == signal.SIGTERM else 1)
    again = _index(tmp_path, edges, output)
    said, _ = again.communicate(timeout=120)
    events = [event for line in said.splitlines() if (event := parse_event(line))]
    assert again.returncode == 0, said
    assert events[-1]["event"] == "done"
    assert not [event for event in events if "waiting" in str(event.get("message"))]
    assert _lease(s3_store) == []


def test_store_away_for_a_while_does_not_end_a_stage(s3_store: Store, s3_proxy: S3Proxy, tmp_path: Path) -> None:
    """In the middle of its work, from its first write on."""
    s3_store.root.join("edges.csv").write_atomic("a,b\nb,c\n")
    s3_proxy.trip = (b"PUT /superworkflow-tests/", "refuse", 8.0)
    stage = _index(tmp_path, s3_store.root.join("edges.csv").uri, s3_store.location("index", "0" * 32).uri)
    said, _ = stage.communicate(timeout=200)
    assert s3_proxy.tripped.is_set()
    assert stage.returncode == 0, said
    messages = [str(event.get("message")) for line in said.splitlines() if (event := parse_event(line))]
    assert [m for m in messages if m.startswith(f"waiting: the store at {s3_proxy.url} does not answer")]
    assert [m for m in messages if "answers again" in m]
    assert "Traceback" not in said
