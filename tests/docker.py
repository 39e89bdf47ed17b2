"""Docker for tests: its client, and the project's images, each built once, by one process at a time.

`DOCKER` names the client. `SUPERWORKFLOW_TEST_BASE` names a base image to build on where Docker can have no other,
`SUPERWORKFLOW_TEST_DOCKER_ARGS` more arguments of `docker build`.
"""

import os
import subprocess
import tempfile
from pathlib import Path

import pytest

from superworkflow.infra.storage.location import Location
from superworkflow.infra.storage.lock import exclusive

ROOT = Path(__file__).parents[1]
DOCKER = os.environ.get("DOCKER", "docker")
BASE = os.environ.get("SUPERWORKFLOW_TEST_BASE", "python:3.11-slim-bookworm")
BUILD_ARGS = [*os.environ.get("SUPERWORKFLOW_TEST_DOCKER_ARGS", "").split(), "--build-arg", f"BASE={BASE}"]
REGISTRY, TAG = "localhost/superworkflow", "test"
_built: set[str] = set()


def docker(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([DOCKER, *arguments], capture_output=True, text=True, timeout=300)


def need_engine() -> None:
    """Skip where no engine answers, or it can have no base image."""
    try:
        answer = docker("version")
    except OSError as error:
        pytest.skip(f"no Docker client: {error}; DOCKER names one, or apt-get install docker.io")
    if answer.returncode:
        pytest.skip(f"no Docker engine answers: {_last(answer)}")
    if docker("image", "inspect", BASE).returncode and (pulled := docker("pull", "--quiet", BASE)).returncode:
        pytest.skip(f"the base image {BASE} cannot be pulled: {_last(pulled)}; SUPERWORKFLOW_TEST_BASE names another")


def build(*kinds: str) -> dict[str, str]:
    """Name of the image of each kind; those that are not there yet are built. Skips where there is no engine."""
    need_engine()
    if missing := [kind for kind in kinds if kind not in _built]:
        command = ["make", "images", f"KINDS={' '.join(missing)}", f"REGISTRY={REGISTRY}", f"TAG={TAG}",
                   f"DOCKER={DOCKER}", f"DOCKER_ARGS={' '.join(BUILD_ARGS)}"]  # fmt: skip
        with exclusive(Location.of(tempfile.gettempdir()).join("superworkflow-images")):  # others find the layers then
            built = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        assert built.returncode == 0, built.stdout[-4000:]
        _built.update(missing)
    return {kind: f"{REGISTRY}/{kind}:{TAG}" for kind in kinds}


def build_stand_in(name: str) -> str:
    """An image of tests/servers/ and its name."""
    image = f"{REGISTRY}/{name}:{TAG}"
    folder = ROOT / "tests" / "servers"
    done = docker("build", *BUILD_ARGS, "-f", str(folder / f"{name}.Dockerfile"), "-t", image, str(folder))
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr
    return image


def _last(done: subprocess.CompletedProcess[str]) -> str:
    """Last line of a command's output."""
    return (done.stderr or done.stdout).strip().rpartition("\n")[2] or f"exit status {done.returncode}"
