"""Targets of the Makefile, by `make`'s own dry run."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
pytestmark = pytest.mark.skipif(shutil.which("make") is None, reason="needs make")


def _dry(target: str, folder: Path, interpreters: dict[str, int]) -> subprocess.CompletedProcess[str]:
    """`make --dry-run` without an environment yet, where these Pythons (with their minor versions) are on the path."""
    programs = folder / "bin"
    programs.mkdir(exist_ok=True)
    for name in ("make", "sh", "env"):
        (programs / name).symlink_to(shutil.which(name) or name)
    for name, minor in interpreters.items():
        # As pyenv's shims do, a version of 0 is a program of this name that does not run.
        text = "exit 127" if minor == 0 else f"exit $((3 * 100 + {minor} < 311))"
        (programs / name).write_text(f"#!/bin/sh\n{text}\n")
        (programs / name).chmod(0o755)
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHON", "MAKEFLAGS")}
    return subprocess.run(
        ["make", "--dry-run", target, f"VENV={folder / 'environment'}"], cwd=ROOT,
        env=environment | {"PATH": str(programs)}, capture_output=True, text=True, timeout=60,
    )  # fmt: skip


def test_run_does_without_the_tools_of_tests(tmp_path: Path) -> None:
    steps = _dry("run", tmp_path, {"python3.11": 11}).stdout
    assert "-r requirements.txt" in steps
    assert "requirements-dev" not in steps
    assert "requirements-spark" not in steps


@pytest.mark.parametrize("target", ["test-here", "test-cluster", "lint", "format"])
def test_what_tests_and_lint_need_is_installed_for_them(tmp_path: Path, target: str) -> None:
    assert "-r requirements-dev.txt" in _dry(target, tmp_path, {"python3.11": 11}).stdout


@pytest.mark.parametrize(
    ("interpreters", "chosen"),
    [
        ({"python3.11": 11, "python3.13": 13, "python3": 13}, "python3.11"),
        ({"python3.11": 0, "python3.12": 12, "python3": 9}, "python3.12"),
        ({"python3.10": 10, "python3": 13}, "python3"),
    ],
)
def test_first_python_that_runs_and_is_new_enough(tmp_path: Path, interpreters: dict[str, int], chosen: str) -> None:
    steps = _dry("setup", tmp_path, interpreters).stdout
    assert f"|| {chosen} -m venv " in steps


def test_no_python_is_new_enough(tmp_path: Path) -> None:
    steps = _dry("setup", tmp_path, {"python3": 10}).stdout
    assert 'test -n "" || { echo "needs Python 3.11 or newer' in steps
