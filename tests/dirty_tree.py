"""A copy of the checkout's tracked files with what work leaves in it, for tests of what is built there."""

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
ROOMS = ("dashboards", "flows", "infra", "sweeps", "tasks")
_STORE_FILES = (
    "manifest.json",
    "vectors.npy",
    "part-0.parquet",
    "README.md",
    "stage.yaml",
    "page.html",
    "edges.txt.gz",
)
_LOOSE_FILES = (
    ".env", "mlflow.db", "report.html", "notes.md", "notes.txt", "study.json", "profile.yaml", "graph.txt.gz",
    "kernel-1.nbi", "kernel.1.nbc", "params.py~", ".params.py.swp", ".#params.py", "#params.py#", "params.py.orig",
    "module.cpython-311.pyc", "server.ini", "run.properties", "figure.svg",
)  # fmt: skip
_PLACES = ("", "superworkflow", "infra", "infra/storage", "infra/profiles", "infra/prices", "tasks", "tasks/walk",
           "flows", "flows/data", "sweeps", "dashboards", "dashboards/web")  # fmt: skip


def tracked_files() -> list[str]:
    """Paths of files that git tracks and the checkout has, relative to its root, as `infra/contract/params.py`."""
    try:
        listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True, text=True).stdout
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("needs a checkout of git")
    return [name for name in listed.split("\0") if name and (ROOT / name).exists()]


def make_dirty_tree(folder: Path) -> set[str]:
    """Copy all tracked files into a folder and add a user's; returns the paths of what was added."""
    for name in tracked_files():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, folder / name, follow_symlinks=False)
    dirt = set()
    for place in _PLACES:
        prefix = f"{place}/" if place else ""
        if not (folder / place).is_dir():
            continue
        dirt |= {prefix + name for name in _LOOSE_FILES}
        dirt |= {f"{prefix}__pycache__/{name}" for name in ("own.cpython-311.pyc", "own.f-1.py311.nbi")}
        for store in ("superworkflow-store", "superworkflow_results", "my-store"):
            dirt |= {f"{prefix}{store}/index/0a1b2c/{name}" for name in _STORE_FILES}
            dirt |= {f"{prefix}{store}/.records/index.json", f"{prefix}{store}/mlflow/mlflow.db"}
        dirt |= {f"{prefix}mlruns/0/meta.yaml", f"{prefix}mlruns/0/a1/params/rate"}
    # Left by builds of before: setuptools packs the first as it is, and reads which files there are in the second.
    dirt |= {"build/lib/superworkflow/gone.py", "build/lib/superworkflow-store/index/manifest.json"}
    for name in dirt:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("a user's own\n")
    listing = folder / "superworkflow.egg-info" / "SOURCES.txt"
    listing.parent.mkdir()
    listing.write_text("".join(f"{name}\n" for name in sorted(dirt)))
    return dirt
