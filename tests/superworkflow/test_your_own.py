"""Superworkflows of users: files and entry points, and what is said of those that cannot be."""

from __future__ import annotations

import ast
import importlib
import json
import re
import subprocess
import sys
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import superworkflow
from superworkflow.__main__ import main
from superworkflow.flows import load_superworkflow, superworkflow_names
from superworkflow.flows.user_file import stage_of_file
from superworkflow.infra.base.errors import UserError
from superworkflow.infra.config.request import build_request
from superworkflow.infra.contract.code_file import read_code, run_code
from superworkflow.infra.storage.store import Store
from superworkflow.sweeps.setup import Wishes, restore, set_up
from superworkflow.tasks import load_stage, stage_names

ROOT = Path(__file__).parents[2]
Call = Callable[..., tuple[int, str, str]]


def example() -> str:
    """The file of `docs/your-own.md`."""
    (text,) = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "your-own.md").read_text(), re.DOTALL)
    return str(text)


PARENT = '''
"""A stage that says whether a prepared process was forked for it."""
import os
from pathlib import Path

from superworkflow import Diagram, Input, Output, Source, Stage, StageParams, StageRun, Superworkflow


def parent(job: StageRun[StageParams]) -> Output:
    words = Path(f"/proc/{os.getppid()}/cmdline").read_text().split("\\0")
    return Output(rows=1, metrics={"forked": float("serve" in words)})


PARENT = Stage(name="parent", run=parent, inputs={"edges": Input("a file", file=True)}, params=StageParams,
               metrics=("forked",))


def diagram(flow: Diagram, edges: Source) -> None:
    flow.stage(PARENT, edges=edges)


SUPERWORKFLOW = Superworkflow(name="parents", help="nothing", stages=(PARENT,), sources={"edges": "a file"},
                              diagram=diagram)
'''


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working folder, with the file and a small graph."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "120")
    (tmp_path / "mine.py").write_text(example())
    (tmp_path / "edges.csv").write_text("a,b\nb,c\nc,a\nc,d\n")
    return tmp_path


@pytest.fixture
def call(folder: Path, capsys: pytest.CaptureFixture[str]) -> Call:
    """The command line in this process."""

    def call(*arguments: str) -> tuple[int, str, str]:
        try:
            status = main(arguments)
        except SystemExit as error:  # argparse
            status = int(str(error.code))
        return (status, *capsys.readouterr())

    return call


def _digests(name: str) -> dict[str, str]:
    diagram = build_request(load_superworkflow(name), sources={"edges": "edges.csv"}).diagram
    return {node.name: node.digest for node in diagram.nodes.values()}


@pytest.mark.usefixtures("folder")
def test_the_text_is_in_the_digest_of_the_stages_that_it_defines(folder: Path) -> None:
    (folder / "other").mkdir()
    (folder / "other" / "mine.py").write_text(example() + "# another text\n")
    one, other = _digests("./mine.py"), _digests("other/mine.py")
    assert one["index"] == other["index"]
    assert one["degrees"] != other["degrees"]
    (folder / "same.py").write_text(example())
    assert _digests("same.py") == one, "the name of the file does not matter"
    (folder / "mine.py").write_text("not Python any more")
    assert _digests("mine.py") == one, "what was read counts"


def test_a_study_is_of_one_text(folder: Path) -> None:
    (folder / "space.yaml").write_text("degrees: {minimum: [0, 1]}\n")
    (folder / "edited.py").write_text(example() + "# another text\n")
    request = build_request(load_superworkflow("mine.py"), sources={"edges": "edges.csv"})
    spec = set_up(request, Wishes(objectives=["degrees.spread"], space="space.yaml")).spec
    assert spec.sources["code"] == read_code("mine.py").sha256
    launch = {"sources": {"edges": "edges.csv"}, "profile": "laptop", "store": "store", "prices": None}
    assert restore(load_superworkflow("mine.py"), spec, launch).superworkflow.name == "hubs"
    with pytest.raises(UserError, match=r"edited\.py: this file has changed since the sweep was started"):
        restore(load_superworkflow("edited.py"), spec, launch)


@pytest.mark.usefixtures("folder")
def test_a_cell_shows_one_line() -> None:
    shown = repr(load_superworkflow("mine.py"))
    assert shown == "<superworkflow hubs: degrees of a graph; stages index, degrees>"


def test_help_of_a_file_and_of_its_stage(call: Call) -> None:
    status, out, _ = call("run", "./mine.py", "--help")
    assert status == 0
    for words in ("hubs: degrees of a graph", "--edges FILE", "degrees.minimum"):
        assert words in out
    status, out, _ = call("stage", "degrees", "--code", "./mine.py", "--help")
    assert status == 0
    assert "--input graph=URI" in out
    assert "Vertices of a lower degree are left out." in out
    assert "\n.\n" not in out, "a stage without a help text has no description"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("def diagram(", "def diagram(("), r"mine\.py:\d+: not valid Python: .* Correct the file"),
        (("DEGREES = Stage(", "1 / 0\nDEGREES = Stage("), r"mine\.py:\d+: ZeroDivisionError: division by zero"),
        (("    flow.stage(", "    graph = nothing\n    flow.stage("), r"mine\.py:\d\d: NameError: name 'nothing'"),
        (("import numpy", "import sys; sys.exit(3)\nimport numpy"), r"mine\.py:3: SystemExit: 3"),
        (("import numpy", "import nowhere_to_be_found\nimport numpy"), r"mine\.py:3: ModuleNotFoundError: .*Install"),
        (("import numpy", "import helper\nimport numpy"), r"mine\.py:3: imports a module .*'helper'"),
        (("    kept =", "    from helper import x\n    kept ="), r"mine\.py:\d+: imports a module"),
        (("import numpy", "from . import helper\nimport numpy"), r"mine\.py:3: imports a module from its own folder"),
        (("(StageParams)", ""), r"stage degrees: the parameters are no StageParams"),
        (("int = Field(default=0", "int = Field(default=-1"), r"defaults: degrees\.minimum: input .*got -1"),
        (("SUPERWORKFLOW =", "OTHER ="), r"mine\.py: defines no superworkflow\. Write SUPERWORKFLOW ="),
        (('name="hubs"', 'name="node2vec"'), r"another superworkflow of this name is defined by superworkflow itself"),
        (('name="hubs"', 'name="my hubs"'), r"mine\.py: superworkflow: not a name .got 'my hubs'"),
        (('name="degrees"', 'name="walk"'), r"stage walk of .*mine\.py: another stage .* by superworkflow itself"),
        (("stages=(index.STAGE, DEGREES)", "stages=(index.STAGE, index.STAGE)"), r"of stage d.* Add the stage to"),
        (('{"graph": Input', '{"code": Input'), r"no input of a stage in a file can be called code"),
        (('metrics=("spread",)', 'metrics=("spread",), engines={"spark": ""}'), r"in a file runs in process.*'spark'"),
        (('"spread", "minimize"', '"spred", "minimize"'), r"no such metric .got 'spred'.. Did you mean spread\?"),
        (("flow: Diagram, edges", "flow: Diagram, edge"), r"diagram has other arguments .*def diagram.flow, edges."),
        (("run=degrees", 'run=f"{__name__}:degreees"'), r"stage degrees: module .* does not .*Did you mean degrees\?"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_file_is_one_line(call: Call, folder: Path, change: tuple[str, str], message: str) -> None:
    (folder / "helper.py").write_text("x = 1\n")
    text = example()
    assert change[0] in text
    (folder / "mine.py").write_text(text.replace(change[0], change[1], 1))
    status, out, err = call("plan", "./mine.py", "--edges", "edges.csv")
    assert status == 2
    assert re.search(message, err), err
    assert "Traceback" not in err + out


@pytest.mark.parametrize(
    ("change", "status", "message"),
    [
        (
            ("rows=len(kept)", "rows=-1"),
            2,
            r"stage degrees, rows: the Output .* \(got -1\). Give rows as",
        ),
        (('"spread": float(', '"spread": str('), 2, r"stage degrees, metric spread: is no number .got '0"),
        (("    return Output(", "    Output("), 2, r"returned no Output \(got 'NoneType'\)"),
        (('metrics={"spread"', 'metrics={"spred"'), 0, r"declares no metric spred, .* it declares spread"),
        (
            ("float(kept.std() / kept.mean())", 'float("nan")'),
            0,
            r"warning: metric spread is nan, which no table shows",
        ),
    ],
)
def test_what_a_stage_returns(
    call: Call, folder: Path, change: tuple[str, str], status: int, message: str
) -> None:  # fmt: skip
    (folder / "mine.py").write_text(example().replace(*change))
    ended, out, err = call("run", "./mine.py", "--edges", "edges.csv", "--no-tracking")
    assert ended == status
    assert re.search(message, " ".join((out + err).split())), out + err


def test_several_superworkflows_in_a_file(call: Call, folder: Path) -> None:
    text = example().replace(
        "SUPERWORKFLOW =", "from superworkflow.flows.node2vec import SUPERWORKFLOW\nSUPERWORKFLOW ="
    )
    (folder / "one.py").write_text(text.replace("import SUPERWORKFLOW", "import SUPERWORKFLOW as NODE2VEC"))
    assert call("plan", "one.py", "--edges", "edges.csv")[0] == 0, "one that is imported is another file's"
    (folder / "two.py").write_text(
        example() + "from dataclasses import replace\nSECOND = replace(SUPERWORKFLOW, name='second')\n"
    )
    status, _, err = call("plan", "two.py", "--edges", "edges.csv")
    assert (status, "two.py: defines several superworkflows: SECOND, SUPERWORKFLOW. Give" in err) == (2, True)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("plan nowhere.py", "/nowhere.py: no such file. Give the path of a Python file."),
        ("plan mine --edges edges.csv", "mine: no such superworkflow. Did you mean mine.py?"),
        ("plan s3://bucket/mine.py", "s3://bucket/mine.py: a file that is run must be on this machine. Copy it here"),
        ("stage dgrees --code mine.py --output x", "mine.py: defines no such stage (got 'dgrees'). Did you mean degr"),
        ("stage degrees --code " + "0" * 64 + "@mine.py --output x", "changed: its SHA-256 should be 0000"),
        ("plan large.py", "a file with code has at most 1048576 bytes"),
        ("plan latin.py", "not a text in UTF-8"),
    ],
)
def test_what_is_not_there_or_not_to_be_run(call: Call, folder: Path, arguments: str, message: str) -> None:
    (folder / "large.py").write_bytes(b"#" * (1 << 20) + b"\n")
    (folder / "latin.py").write_bytes(b"# \xe9\n")
    status, _, err = call(*arguments.split())
    assert status == 2
    assert message in err


def test_a_copy_is_run_only_with_its_sum(folder: Path) -> None:
    (folder / "mine.py").write_bytes(example().replace("\n", "\r\n", 9).encode())
    reference = read_code("mine.py").keep(Store(folder / "store"))
    copy = Path(reference.partition("@")[2])
    assert copy.read_bytes() == (folder / "mine.py").read_bytes()
    assert stage_of_file("degrees", read_code(reference)).run_path == f"{read_code('mine.py').module}:degrees"
    other = Path((unread := read_code("mine.py").keep(Store(folder / "other"))).partition("@")[2])
    other.write_text(example() + "raise SystemExit('taken over')\n")
    with pytest.raises(UserError, match=r"this copy of the code has been changed: .* it was not run"):
        read_code(unread)
    assert read_code("mine.py").keep(Store(folder / "other")) == unread
    assert other.read_bytes() == copy.read_bytes(), "what was changed is written anew"


def test_stages_of_a_file_are_forked_as_others_are(folder: Path) -> None:
    (folder / "parents.py").write_text(PARENT)
    command = [sys.executable, "-m", "superworkflow", "run", "parents.py", "--edges", "edges.csv", "--no-tracking"]
    done = subprocess.run([*command, "--json"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["metrics"] == {"parent.forked": 1.0}


def test_errors_in_a_stage_show_the_text_that_ran(folder: Path) -> None:
    (folder / "mine.py").write_text(example().replace("np.diff(", "np.dif("))
    module = run_code(read_code("mine.py"))
    (folder / "mine.py").write_text("")
    graph = SimpleNamespace(array=lambda name: np.array([0, 1, 2]))
    with pytest.raises(AttributeError) as caught:
        module.degrees(SimpleNamespace(inputs={"graph": graph}, params=module.Params()))
    assert "degrees = np.dif(" in "".join(traceback.format_exception(caught.value))


def _package(folder: Path, name: str, flows: str = "", stages: str = "", **modules: str) -> None:
    """An installed package with entry points."""
    info = folder / f"{name}-1.5.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.5\n")
    (info / "entry_points.txt").write_text(f"[superworkflow.flows]\n{flows}\n[superworkflow.stages]\n{stages}\n")
    for module, text in modules.items():
        (folder / f"{module}.py").write_text(text)


@pytest.fixture
def site(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder of packages, one of which defines `hubs` and its stage."""
    path = folder / "site"
    _package(path, "first", "hubs = sw_hubs", "degrees = sw_hubs:DEGREES", sw_hubs=example())
    monkeypatch.syspath_prepend(str(path))
    yield path
    for name in [each for each in sys.modules if each.startswith("sw_")]:
        del sys.modules[name]


@pytest.mark.usefixtures("site")
def test_entry_points(call: Call) -> None:
    assert {"hubs", "node2vec"} <= set(superworkflow_names())
    assert {"degrees", "walk"} <= set(stage_names())
    superworkflow = load_superworkflow("hubs")
    assert superworkflow.stages[1] is load_stage("degrees")
    assert (superworkflow.code, superworkflow.own) == (None, frozenset())
    assert call("plan", "hubs", "--edges", "edges.csv")[0] == 0
    assert "Did you mean hubs?" in call("plan", "hbus")[2]


def test_entry_points_that_cannot_be_used_harm_no_other(site: Path, call: Call) -> None:
    _package(site, "second", "hubs = sw_other\nbroken = sw_broken\nodd = sw_odd:NUMBER\nbare = sw_bare\na b = sw_bare",
             sw_broken="raise RuntimeError('half installed')", sw_odd="NUMBER = 3",
             sw_bare=example().replace('"degrees"', '"lonely"').replace("hubs", "bare"))  # fmt: skip
    status, _, err = call("run")
    assert status == 2
    listed = {line[4:].partition("  ")[0]: line for line in err.splitlines()[1:-1]}
    assert listed["node2vec"].endswith("vertex embeddings from biased random walks (from superworkflow itself)")
    both = "this superworkflow is defined by package first 1.5 and by package second 1.5"
    assert both in listed["hubs"]
    for name, message in {
        "hubs": both,
        "broken": "superworkflow broken of package second 1.5: cannot be imported: RuntimeError: half installed",
        "a b": "superworkflow a b of package second 1.5: not a name (got 'a b')",
        "odd": "superworkflow odd of package second 1.5: is no superworkflow (got 'int')",
        "bare": "stage lonely of package second 1.5: has no entry point",
    }.items():
        assert message in listed[name]
        assert message in call("plan", name, "--edges", "edges.csv")[2]
    assert call("plan", "node2vec", "--edges", "edges.csv")[0] == 0


def test_no_package_takes_the_name_of_a_shipped_one(site: Path, call: Call) -> None:
    _package(site, "third", "node2vec = sw_hubs\nstroll = sw_stroll", "walk = sw_stroll:DEGREES",
             sw_stroll=example().replace('"degrees"', '"walk"').replace("hubs", "stroll"))  # fmt: skip
    assert load_stage("walk").run.startswith("superworkflow.tasks.walk")
    message = "node2vec: this superworkflow is defined by superworkflow itself and by package third 1.5"
    assert message in call("plan", "node2vec", "--edges", "edges.csv")[2]
    message = "stage walk of package third 1.5: another stage of this name is defined by superworkflow itself and by "
    assert message in call("plan", "stroll", "--edges", "edges.csv")[2]


def test_a_stage_without_an_estimate_is_planned_by_its_input_and_then_by_its_record(
    call: Call, prefect_api: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PREFECT_API_URL", prefect_api)
    given = ("./mine.py", "--edges", "edges.csv", "--store", "store")
    status, planned, err = call("plan", *given)
    assert status == 0, err
    assert "input bytes" in planned
    status, _, err = call("run", *given, "--no-tracking")
    assert status == 0, err
    planned = call("plan", *given, "--set", "degrees.minimum=1")[1]
    assert "input bytes" not in planned
    assert re.search(r"degrees .*\b1 run\b", planned)


def test_names_for_authors_are_those_of_their_modules() -> None:
    for name, module in superworkflow._HOMES.items():
        assert getattr(superworkflow, name) is getattr(importlib.import_module(module), name)
    shown = ast.parse(Path(superworkflow.__file__ or "").read_text())
    checked = [alias.name for node in ast.walk(shown) if isinstance(node, ast.ImportFrom) for alias in node.names]
    assert sorted(superworkflow._HOMES) == sorted(set(checked) - {"annotations", "TYPE_CHECKING", "Any", "__version__"})
    with pytest.raises(AttributeError, match="has no attribute 'Stages'"):
        superworkflow.Stages  # noqa: B018


def test_the_package_itself_imports_nothing_heavy() -> None:
    script = "import sys; before = set(sys.modules); import superworkflow; print(len(set(sys.modules) - before))"
    done = subprocess.run([sys.executable, "-I", "-c", script], capture_output=True, text=True, check=True)
    assert int(done.stdout) < 10
