"""The command line as a process: help, bad input in one line each, exit statuses, and what is printed where."""

import contextlib
import json
import os
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from superworkflow import __version__
from superworkflow.__main__ import COMMANDS, INTERNAL, build_parser, main
from superworkflow.flows import load_superworkflow
from superworkflow.infra.tracking.mlflow_tracker import open_client
from superworkflow.tasks import load_stage, stage_names


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A working folder with a small graph."""
    (tmp_path / "edges.csv").write_text("a,b\nb,c\nc,a\nc,d\n")
    return tmp_path


@dataclass
class Answer:
    """Result of a command."""

    returncode: int
    stdout: str
    stderr: str


@pytest.fixture
def call(folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., Answer]:
    """The command line in this process, for the many that end before any work."""
    monkeypatch.chdir(folder)
    monkeypatch.setenv("COLUMNS", "100")

    def call(*arguments: str) -> Answer:
        try:
            status = main(arguments)
        except SystemExit as error:  # argparse
            status = int(str(error.code))
        return Answer(status, *capsys.readouterr())

    return call


def _run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if name != "MLFLOW_TRACKING_URI"}
    return subprocess.run(
        [sys.executable, "-m", "superworkflow", *arguments],
        cwd=folder, env=environment, capture_output=True, text=True, timeout=120, stdin=subprocess.DEVNULL,
    )  # fmt: skip


@pytest.mark.parametrize("command", [*COMMANDS, *INTERNAL, None])
def test_help(call: Callable[..., Answer], command: str | None) -> None:
    done = call(*([command] if command else []), "--help")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"usage: superworkflow {command or '[-h]'}")
    if command is None:
        listed = [line.split()[0] for line in done.stdout.splitlines() if line.startswith("    ") and line[4] != " "]
        assert listed == list(COMMANDS)


def test_help_of_a_superworkflow_names_its_files_flags_and_parameters(call: Callable[..., Answer]) -> None:
    out = " ".join(call("run", "node2vec", "--help").stdout.split())
    for expected in ("--edges FILE", "--labels FILE", "--directed", "walk.walk_length", "embed.dimensions"):
        assert expected in out


_REQUEST = ("run", "plan", "explain", "sweep", "deploy")


@pytest.mark.parametrize("command", _REQUEST)
def test_help_tells_of_every_parameter_what_it_means_takes_and_is(call: Callable[..., Answer], command: str) -> None:
    done = call(command, "node2vec", "--help")
    assert done.returncode == 0, done.stderr
    out = " ".join(done.stdout.split())
    superworkflow = load_superworkflow("node2vec")
    for prefix, model in superworkflow.models().items():
        for name, field in model.model_fields.items():
            assert f" {prefix}.{name} " in out
            assert " ".join(str(field.description).split()) in out
    assert "walk.walk_length integer, at least 1, at most 1,000,000; default 80 Vertices of a walk" in out
    assert "node2vec.link_prediction true or false; default true Also evaluate" in out
    for source, text in superworkflow.sources.items():
        need = "optional" if source in superworkflow.optional else "required"
        assert f"--{source} {'RUN' if source in superworkflow.datasets else 'FILE'} {text} ({need})" in out


@pytest.mark.parametrize("stage", stage_names())
def test_help_of_a_stage_tells_of_its_inputs_and_parameters(call: Callable[..., Answer], stage: str) -> None:
    done = call("stage", stage, "--help")
    assert done.returncode == 0, done.stderr
    out = " ".join(done.stdout.split())
    defined = load_stage(stage)
    for name, given in defined.inputs.items():
        kinds = [
            kind for kind, is_one in (("FILE", given.file or given.tables), ("FOLDER", given.folder or given.inside))
            if is_one
        ]  # fmt: skip
        assert f"--input {name}={'|'.join(kinds) or 'URI'} {given.help}" in out
    for name, field in defined.params.model_fields.items():
        assert f" {name} " in out
        assert " ".join(str(field.description).split()) in out
    assert max(map(len, done.stdout.splitlines())) <= 100


def test_help_and_parsing_import_nothing_heavy(folder: Path) -> None:
    code = (
        "import sys\nfrom superworkflow.__main__ import main\n"
        "try: main(['--help'])\nexcept SystemExit: pass\n"
        "print('loaded', *(set(sys.modules) & {'pydantic', 'numpy', 'fsspec', 'yaml', 'prefect', 'mlflow'}))\n"
        "import superworkflow.arguments, superworkflow.flows.gnn\n"
        "late = {'pyarrow', 'rich', 'prefect', 'mlflow', 'superworkflow.flows.vertex_program'}\n"
        "print('with a superworkflow', *(set(sys.modules) & late))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, timeout=120)
    assert done.stdout.splitlines()[-2:] == ["loaded", "with a superworkflow"], done.stderr


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("--set walk.p=0.5", ""),
        ("--set walk.p=0.5 walk.q=2", ""),
        ("--set=walk.p=0.5 walk.q=2", "--set walk.walk_length=40 walk.num_walks=1"),
        ("--set walk.p=-0.5 --store mine --set walk.q=2", ""),
    ],
)
def test_set_does_not_take_the_name_after_it(before: str, after: str) -> None:
    line = ["plan", *before.split(), "node2vec", "--edges", "edges.csv", *after.split()]
    options = build_parser(line).parse_args(line)
    assert options.superworkflow == "node2vec"
    assert options.edges == "edges.csv"
    assert options.set == [each.removeprefix("--set=") for each in line if "=" in each]


def test_version(folder: Path) -> None:
    assert _run(folder, "--version").stdout == f"superworkflow {__version__}\n"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("rnu", "rnu: no such command. Did you mean run?"),
        ("walk", "walk: no such command. Valid: {commands}."),
        ("sweep statsu", "statsu: neither a superworkflow nor an action. Did you mean status?"),
        ("sweep nod2vec", "nod2vec: no such superworkflow. Did you mean node2vec?"),
        ("stage wlak --help", "wlak: no such stage. Did you mean walk?"),
        ("run --set walk.p=0.5 node2vec --edges none.csv", "{folder}/none.csv: no such file."
                                                           " Give the path or URI of a file with content."),
        ("plan node2vce --edges edges.csv", "node2vce: no such superworkflow. Did you mean node2vec?"),
        ("plan node2vec", "edges: node2vec needs an edge list: CSV, TSV, whitespace-separated or Parquet,"
                          " optionally gzipped; or a folder of part files. Give it with --edges FILE."),
        ("plan node2vec --edges none.csv", "{folder}/none.csv: no such file."
                                           " Give the path or URI of a file with content."),
        ("plan node2vec --edges edges.csv --set walk.walk_lenght=40",
         "walk.walk_lenght: unknown parameter. Did you mean walk.walk_length?"),
        ("plan node2vec --edges edges.csv --set wlak.p=2",
         "--set wlak.p: unknown parameter. Did you mean walk.p?"),
        ("plan node2vec --edges edges.csv --set walk.p",
         "--set: not of the form stage.parameter=value (got 'walk.p'). Write --set train.epochs=3."),
        ("explain node2vec --edges edges.csv --config none.yaml",
         "none.yaml: cannot be read: No such file or directory. Check the path."),
        ("plan node2vec --edges edges.csv --profile labtop",
         "--profile: no such profile (got 'labtop'). Did you mean laptop?"),
        ("stage wlak --output x", "wlak: no such stage. Did you mean walk?"),
        ("stage walk --output x", "graph: stage walk needs this input ({help}). Give it with --input graph=URI."),
        ("stage walk --output x --input graph",
         "--input: not of the form NAME=URI (got 'graph'). Write --input graph=URI."),
        ("stage walk --output x --input graph=none",
         "{folder}/none: no complete dataset here (no manifest.json)."
         " Check the URI, or run the stage that makes this dataset."),
        ("stage walk --output x --params-json [1]",
         "--params-json: must be a JSON object (got '[1]'). Write {{\"p\": 0.5}}."),
        ("stage walk --output x --threads -2",
         "--threads: must be 1 or more (got -2)."),
        ("stage walk --output x --memory much",
         "--memory: not a quantity of bytes such as 512Mi or 16Gi (got 'much')."),
        ("run node2vec --edges edges.csv --store edges.csv/store --no-tracking",
         "{folder}/edges.csv/store: the store cannot be written: NotADirectoryError: [Errno 20] Not a directory:"
         " '{folder}/edges.csv/store'. Check its permissions, free space or credentials, or choose another with"
         " --store."),
        ("stage walk --output x --resources-json {{\"cpu\":0}}",
         "--resources-json cpu: Input should be greater than 0 (got 0)."),
        ("plan --store s4://x/y node2vec --edges edges.csv",
         "s4://x/y: unknown protocol (got 's4'). Use a local folder or s3://bucket/prefix."),
    ],
)  # fmt: skip
def test_bad_input_is_one_line(call: Callable[..., Answer], folder: Path, arguments: str, message: str) -> None:
    done = call(*arguments.format().split())
    help_text = load_stage("walk").inputs["graph"].help
    assert (
        done.stderr == f"error: {message.format(folder=folder, help=help_text, commands=', '.join(sorted(COMMANDS)))}\n"
    )
    assert done.stdout == ""
    assert done.returncode == 2
    assert [path.name for path in folder.iterdir()] == ["edges.csv"]


def test_database_that_takes_no_writes_is_one_line(call: Callable[..., Answer], folder: Path) -> None:
    uri = f"sqlite:///{folder}/store/mlflow/mlflow.db"
    (folder / "store" / "mlflow").mkdir(parents=True)
    client = open_client(uri)
    run = client.create_run(client.create_experiment("superworkflow"), tags={"superworkflow.name": "mine"}).info.run_id
    with contextlib.closing(sqlite3.connect(folder / "store" / "mlflow" / "mlflow.db")) as database:
        database.execute("CREATE TRIGGER refuse BEFORE INSERT ON tags BEGIN SELECT 1 FROM nowhere; END")
    done = call("note", run, "hello", "--store", "store")
    assert done.returncode == 2, done.stderr
    assert "MLflow cannot write its database: (sqlite3.OperationalError)" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_lock_in_a_folder_without_space_or_permission(call: Callable[..., Answer], folder: Path) -> None:
    (folder / "store").mkdir()
    (folder / "store" / ".pruning.lock").symlink_to("/proc/sys/kernel/ostype")
    done = call("prune", "--keep", "champions", "--store", "store")
    assert done.returncode == 2, done.stderr
    assert done.stderr.startswith("error: ")
    assert ".pruning.lock: cannot be opened or written: " in done.stderr


@pytest.mark.parametrize("parameter", ["walk.p=0", "walk.q=-1", "embed.window=0"])
def test_value_out_of_range(call: Callable[..., Answer], parameter: str) -> None:
    done = call("plan", "node2vec", "--edges", "edges.csv", "--set", parameter)
    name, _, value = parameter.partition("=")
    assert done.returncode == 2
    assert done.stderr.startswith(f"error: {name}: input should be greater than")
    assert f"(got {value})" in done.stderr
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ("", "COMMAND"),
        ("--verison", "Did you mean --version?"),
        ("plan node2vec --egdes x", "unrecognized arguments: --egdes x. Did you mean --edges?"),
        ("stage walk", "--output"),
        ("stage walk --ouput x", "Did you mean --output?"),
        ("generate --modle er", "Did you mean --model?"),
    ],
)
def test_bad_usage(call: Callable[..., Answer], arguments: str, words: str) -> None:
    done = call(*arguments.split())
    assert done.returncode == 2
    assert words in done.stderr
    assert "Traceback" not in done.stderr


def test_yaml_error_has_its_line(call: Callable[..., Answer], folder: Path) -> None:
    (folder / "my.yaml").write_text("walk:\n  p: [1\n  q: 2\n")
    done = call("plan", "node2vec", "--edges", "edges.csv", "--config", "my.yaml")
    assert done.returncode == 2
    assert done.stderr.startswith("error: my.yaml:3: not valid YAML")
    assert len(done.stderr.splitlines()) == 1


def test_options_before_the_name(call: Callable[..., Answer], folder: Path) -> None:
    done = call("plan", "--store", "mine", "node2vec", "--edges", "edges.csv", "--json")
    assert done.returncode == 0, done.stderr
    assert all(stage["output"].startswith(f"{folder}/mine/") for stage in json.loads(done.stdout))


def test_stage_then_plan_and_explain(
    call: Callable[..., Answer], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stage that was run by itself, at the place that the plan names, is cached for the whole."""
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    given = ["node2vec", "--edges", "edges.csv", "--set", "node2vec.link_prediction=false"]
    given += ["index.max_degree=3", "index.seed=4"]
    planned = json.loads(call("plan", *given, "--json").stdout)
    assert {stage["state"] for stage in planned} == {"run"}
    assert not (folder / "superworkflow-store").exists()

    place = planned[0]["output"]
    # Parameters from a file and from text, and a secret that is not to be written down.
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "not-to-be-written-down")
    (folder / "params.yaml").write_text("{max_degree: 3, seed: 3}")
    arguments = ["stage", "index", "--params", "params.yaml", "--params-json", '{"seed": 4}', "--report", "report.json"]
    one = _run(folder, *arguments, "--input", "edges=edges.csv", "--output", place)
    assert one.returncode == 0, one.stderr
    params = json.loads(Path(place, "manifest.json").read_text())["params"]
    assert (params["max_degree"], params["seed"]) == (3, 4)
    written = b"".join(path.read_bytes() for path in Path(place).rglob("*") if path.is_file())
    assert b"not-to-be-written-down" not in written
    assert "not-to-be-written-down" not in one.stdout + one.stderr
    printed = json.loads(one.stdout)
    assert (printed["output"], printed["reused"], printed["rows"]) == (place, False, 4)
    report = json.loads((folder / "report.json").read_text())
    assert report.keys() == {
        "runtime_s", "cpu_s", "peak_memory_bytes", "rows", "bytes", "compile_s", "compile_cpu_s", "delayed_s",
        "processor",
    }  # fmt: skip
    assert report == {name: printed[name] for name in report}

    assert [stage["state"] for stage in json.loads(call("plan", *given, "--json").stdout)][:2] == [
        "cached", "run",
    ]  # fmt: skip
    explained = call("explain", *given).stdout.splitlines()
    assert "cached, made 20" in explained[0]
    assert "will run: the store has no dataset of this stage" in explained[1]
    changed = call("explain", *given, "index.directed=true").stdout.splitlines()
    assert "will run: index.directed: False → True" in changed[0]


def test_generate(call: Callable[..., Answer], folder: Path) -> None:
    done = call("generate", "--model", "er", "--nodes", "50", "--edges", "100", "--out", "made.csv")
    assert done.returncode == 0, done.stderr
    assert done.stdout == "made.csv\n"
    assert len((folder / "made.csv").read_text().splitlines()) in (100, 101)
    done = call("generate", "--model", "mag", "--nodes", "50", "--scale", "1", "--out", "made")
    assert done.returncode == 2
    assert "does not take it" in done.stderr
    assert "Give --scale" in done.stderr
