"""The oracles' environments: made once, below `.oracles/`."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
_NO_DEPENDENCIES = "# no-deps: "
_BESIDE = "# with the project's packages"
"""An environment that has this line also finds what the project's own has, such as torch, and the project itself."""


def python_of(name: str) -> Path:
    """The interpreter of an environment, which is made if it is not there; a changed list makes it anew."""
    folder = ROOT / ".oracles" / name
    python, done = folder / "bin" / "python", folder / "installed.txt"
    wanted = (HERE / f"requirements-{name}.txt").read_text()
    if not done.is_file() or done.read_text() != wanted:
        done.unlink(missing_ok=True)
        if not python.exists():
            subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
        lines = wanted.splitlines()
        if _BESIDE in lines:
            own = Path(sysconfig.get_path("purelib"))
            (site,) = folder.glob("lib/python*/site-packages")
            (site / "project.pth").write_text(f"{own}\n{ROOT}\n")
        alone = [line.removeprefix(_NO_DEPENDENCIES) for line in lines if line.startswith(_NO_DEPENDENCIES)]
        install = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        if needed := [line for line in lines if not line.startswith("#")]:
            subprocess.run([*install, *needed], check=True)
        subprocess.run([*install, "--no-deps", *alone], check=True)
        done.write_text(wanted)
    return python


def run_in(name: str, module: str, *arguments: object) -> None:
    """Run one of the modules `in_…` in an environment; what it asserts ends this program.

    Its standard error is shown only then: TensorFlow writes much about the machine.

    Args:
        name: of the environment.
        module: of this package.
        arguments: its command line.
    """
    environment = os.environ | {"TF_USE_LEGACY_KERAS": "1", "TF_CPP_MIN_LOG_LEVEL": "2", "PYTHONWARNINGS": "ignore"}
    command = [str(python_of(name)), str(HERE / f"{module}.py"), *map(str, arguments)]
    done = subprocess.run(command, env=environment, cwd=ROOT, stderr=subprocess.PIPE, text=True)
    if done.returncode:
        sys.exit(f"{done.stderr}\n{' '.join(command)} failed")
