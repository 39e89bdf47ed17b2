"""`.ci/run`: no tests where lint fails. `.ci/cluster`: they run with a cluster where one starts, and without where none
does."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SHOW = ["sh", "-c", 'echo "config: $SUPERWORKFLOW_TEST_KUBECONFIG"; exit 7']


def _script(folder: Path, text: str) -> Path:
    """A script that starts something, and in its folder one that ends it and writes the file `down`."""
    for name, body in (("cluster.sh", text), ("down.sh", f'echo "$2" > {folder}/down; rm -rf "$1"')):
        (folder / name).write_text(f"#!/bin/sh\n{body}\n")
        (folder / name).chmod(0o755)
    return folder / "cluster.sh"


def _run(script: Path, folder: Path) -> str:
    environment = {**os.environ, "TMPDIR": str(folder), "SUPERWORKFLOW_TEST_KUBECONFIG": ""}
    done = subprocess.run(
        [ROOT / ".ci" / "cluster", script, *SHOW], env=environment, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 7, done.stderr  # the command's own
    return done.stdout


@pytest.fixture
def temporary(tmp_path: Path) -> Path:
    folder = tmp_path / "temporary"
    folder.mkdir()
    return folder


needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")


@needs_root
def test_cluster_starts(tmp_path: Path, temporary: Path) -> None:
    script = _script(tmp_path, 'mkdir "$1"; touch "$1/pids"; echo packages; echo "$1/kubeconfig"')
    out = _run(script, temporary)
    assert out.startswith(f"config: {temporary}/")
    assert out.endswith("/state/kubeconfig\n")
    assert (tmp_path / "down").read_text() == "--purge\n"
    assert list(temporary.iterdir()) == []


@needs_root
@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('mkdir "$1"; touch "$1/pids"; echo half; echo "no cgroup access" >&2; exit 1', "no cgroup access"),
        ("exit 3", "cluster.sh failed"),
    ],
)
def test_cluster_does_not_start(tmp_path: Path, temporary: Path, text: str, reason: str) -> None:
    first, second = _run(_script(tmp_path, text), temporary).splitlines()
    assert first.startswith("no cluster, its tests are left out: ")
    assert first.endswith(reason)
    assert second == "config: "
    assert (tmp_path / "down").exists() is ("pids" in text)
    assert list(temporary.iterdir()) == []


@pytest.mark.skipif(shutil.which("java") is None, reason="it would install Java")
@pytest.mark.parametrize(("lint", "tests", "ran"), [(0, 0, True), (1, 0, False), (0, 3, True)])
def test_tests_follow_lint(tmp_path: Path, lint: int, tests: int, ran: bool) -> None:
    (folder := tmp_path / "project" / ".ci").mkdir(parents=True)
    shutil.copy(ROOT / ".ci" / "run", folder)
    lines = ["lint:", f"\texit {lint}", "kernels:", "\ttouch compiled", "test: compiled", f"\ttouch ran; exit {tests}"]
    (folder.parent / "Makefile").write_text("\n".join(lines) + "\n")
    environment = {**os.environ, "TMPDIR": str(folder), "SUPERWORKFLOW_TEST_KUBECONFIG": "given"}
    done = subprocess.run([folder / "run"], env=environment, capture_output=True, text=True, timeout=60)
    assert (done.returncode == 0) is (lint == tests == 0), done.stderr
    assert (folder.parent / "ran").exists() is ran
    assert list(folder.iterdir()) == [folder / "run"]
