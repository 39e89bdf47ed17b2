"""The wheel, installed and used outside the repository, where the user's folders have the names of our packages."""

import ast
import json
import os
import re
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from pathlib import Path

import pytest

from tests.dirty_tree import ROOMS, ROOT, make_dirty_tree, tracked_files

OWN = {"flows/hubs.py", "tasks/hubs/__init__.py"}
"""Modules that a user adds to packages: they belong to the product that is built there."""
IMPORT_OF_A_ROOM = re.compile(rf"\b(?:from|import)\b[^#\n]*\b(?<!superworkflow\.)(?:{'|'.join(ROOMS)})\b")
"""A quick look for what may be one; most files have none, and a minute goes into parsing all."""
IN_ROOMS = (".py", ".yaml", ".ini", ".json", ".properties", ".gz", ".txt", ".html", ".css", ".js", ".svg", ".md")


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tree in which a user has worked, with modules of their own in packages."""
    folder = tmp_path_factory.mktemp("source")
    make_dirty_tree(folder)
    for name in OWN:
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text("HUBS = 3\n")
    return folder


@pytest.fixture(scope="module")
def wheel(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    _pip("wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", str(folder), str(source))
    (found,) = folder.glob("superworkflow-*.whl")
    return found


def _environment(wheel: Path, name: str) -> Path:
    """The interpreter of a new environment that has the wheel alone."""
    environment = wheel.parent / name
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(environment)], check=True, timeout=120)
    found = environment / "bin" / "python"
    _pip("--python", str(found), "install", "--no-deps", "--no-index", "--no-compile", str(wheel))
    return found


@pytest.fixture(scope="module")
def python(wheel: Path) -> Path:
    """The interpreter of an environment that has the wheel, and sees this one's packages but not the checkout."""
    # The wheel first, while it sees nothing else: pip would take the checkout's own installation for an older one.
    found = _environment(wheel, "environment")
    (site,) = found.parents[1].glob("lib/python3*/site-packages")
    (site / "packages.pth").write_text(f"{sysconfig.get_path('purelib')}\n")  # does not read the .pth files in there
    return found


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a graph, and with modules of the user that end the program that imports them."""
    for name in ROOMS:
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text(f"raise SystemExit('this is the {name} of the user')\n")
    (tmp_path / "edges.csv").write_text("a,b\nb,c\nc,a\nc,d\n")
    return tmp_path


def _pip(*arguments: str) -> None:
    command = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr


def _run(folder: Path, *command: object) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        list(map(str, command)), cwd=folder, env=environment, capture_output=True, text=True, timeout=300,
        stdin=subprocess.DEVNULL,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done


def _product() -> set[str]:
    """Files of the package, as in site-packages."""
    tracked = {name for name in tracked_files() if name.endswith(IN_ROOMS)} | OWN
    files = {f"superworkflow/{name}" for name in tracked if name.partition("/")[0] in ROOMS}
    return files | {name for name in tracked if name.startswith("superworkflow/")} | {"superworkflow/py.typed"}


def test_wheel_has_the_package_and_nothing_else_of_the_tree(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    assert {name for name in names if ".dist-info/" not in name} == _product()
    assert any(name.endswith(".dist-info/licenses/LICENSE") for name in names)


def test_sdist_has_what_a_wheel_is_built_from_and_nothing_else_of_the_tree(source: Path, tmp_path: Path) -> None:
    code = "import sys; from setuptools import build_meta; build_meta.build_sdist(sys.argv[1])"
    _run(source, sys.executable, "-c", code, tmp_path)
    (found,) = tmp_path.glob("superworkflow-*.tar.gz")
    with tarfile.open(found) as archive:
        names = {member.name.partition("/")[2] for member in archive if member.isfile()}
    written = {"PKG-INFO", "setup.cfg"}
    assert {name for name in names if not name.startswith("superworkflow.egg-info/")} == _product() | written | {
        "LICENSE", "MANIFEST.in", "README.md", "pyproject.toml", "setup.py",
    }  # fmt: skip


def test_types_are_seen_by_those_who_use_the_package(wheel: Path, tmp_path: Path) -> None:
    """Without the packages that it needs, whose types take two minutes to read."""
    (tmp_path / "mine.py").write_text(
        "from superworkflow.infra.base.errors import UserError\nreveal_type(UserError('what').exit_code)\n"
    )
    python = _environment(wheel, "types")
    command = [sys.executable, "-m", "mypy", "--strict", "--python-executable", str(python), "--follow-imports=silent",
               "--cache-dir", str(tmp_path / "cache"), "mine.py"]  # fmt: skip
    assert 'Revealed type is "int"' in _run(tmp_path, *command).stdout


def test_commands_work_beside_folders_of_the_same_names(python: Path, folder: Path) -> None:
    """With `-m`, the user's folder even comes first on the path."""
    plan = ("plan", "node2vec", "--edges", "edges.csv", "--json")
    planned = json.loads(_run(folder, python.with_name("superworkflow"), *plan).stdout)
    module = (python, "-m", "superworkflow")
    _run(folder, *module, "stage", "index", "--input", "edges=edges.csv", "--output", planned[0]["output"])
    assert [stage["state"] for stage in json.loads(_run(folder, *module, *plan).stdout)][:2] == ["cached", "run"]


def test_nothing_is_imported_under_a_second_name(python: Path, tmp_path: Path) -> None:
    (tmp_path / "edges.csv").write_text("a,b\nb,c\nc,a\n")
    code = (
        "import importlib.util, sys\n"
        "import superworkflow.deployed, superworkflow.commands.sweep, superworkflow.commands.deploy\n"
        "from superworkflow.__main__ import main\n"
        "assert main(['stage', 'index', '--input', 'edges=edges.csv', '--output', 'out']) == 0\n"
        f"rooms = {ROOMS!r}\n"
        "print(sys.modules['superworkflow.infra.storage.store'].__file__)\n"
        "print([name for name in sys.modules if name.partition('.')[0] in rooms])\n"
        "print([name for name in rooms if importlib.util.find_spec(name)])\n"
    )
    *_, file, loaded, found = _run(tmp_path, python, "-P", "-c", code).stdout.splitlines()
    assert Path(file).is_relative_to(python.parents[1])
    assert (loaded, found) == ("[]", "[]")


def test_no_file_of_the_checkout_imports_a_room_without_the_package() -> None:
    """There the folders can be found as top-level packages too, as second copies of all classes and locks."""
    wrong = []
    for room in ("superworkflow", *ROOMS, "tests"):
        for path in (ROOT / room).rglob("*.py"):
            code = path.read_text()
            for node in ast.walk(ast.parse(code)) if IMPORT_OF_A_ROOM.search(code) else ():
                names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
                if isinstance(node, ast.ImportFrom) and not node.level:
                    names = [node.module or ""]
                where = f"{path.relative_to(ROOT)}:{getattr(node, 'lineno', 0)}"
                wrong += [f"{where} {name}" for name in names if name.partition(".")[0] in ROOMS]
    assert wrong == []


def test_links_of_the_rooms() -> None:
    for room in ROOMS:
        link = ROOT / "superworkflow" / room
        assert link.is_symlink()
        assert link.readlink() == Path("..") / room
