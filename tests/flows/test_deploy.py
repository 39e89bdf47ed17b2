"""Deployments on a process pool: a real server, a real worker, flow runs started by the server's API."""

import asyncio
import contextlib
import json
import os
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from mlflow import MlflowClient
from prefect.client.orchestration import SyncPrefectClient
from prefect.client.schemas.actions import WorkPoolCreate
from prefect.client.schemas.objects import WorkPool
from prefect.settings import PREFECT_API_URL, temporary_settings
from prefect.workers.process import ProcessWorker

from superworkflow.__main__ import main
from superworkflow.commands.deploy import worker_command
from superworkflow.flows import load_superworkflow
from superworkflow.infra.orchestration import DEPLOYED_RETRIES
from superworkflow.infra.tracking.history import recorded_runs
from tests import warm
from tests.flows.command_line import SMALL, STAGES, Answer, CommandLine, stages_at
from tests.flows.deployments import (
    ask,
    assert_tasks,
    cancel_run,
    eventually,
    running_worker,
    start_run,
    task_states,
    wait_for_state,
)

POOL = "process-tests"
NODE2VEC = load_superworkflow("node2vec")


def test_schema_has_descriptions_and_ranges() -> None:
    from superworkflow.infra.orchestration.parameters import flow_schema

    schema = flow_schema(NODE2VEC).model_dump()
    folded = ["index", "label", "holdout", "evaluate", "publish", "drift", "registration"]
    assert sorted(schema["properties"], key=lambda name: schema["properties"][name]["position"]) == [
        "edges", "labels", "initial", "node2vec", "walk", "prepare", "embed", "profile", "store", "prices", *folded,
    ]  # fmt: skip
    assert schema["required"] == ["edges"]
    assert schema["properties"]["edges"]["description"] == NODE2VEC.sources["edges"]
    models = NODE2VEC.models()
    assert set(models) < set(schema["properties"])
    for prefix, model in models.items():
        fields = schema["definitions"][model.__name__]["properties"]
        entry = schema["properties"][prefix]
        if prefix in folded:
            assert (entry["default"], entry["anyOf"][0]["type"]) == (None, "null")
        assert (entry["anyOf"][1] if prefix in folded else entry)["$ref"].endswith(f"/{model.__name__}")
        assert {name: entry["description"] for name, entry in fields.items()} == {
            name: field.description for name, field in model.model_fields.items()
        }
    walk, embed = (schema["definitions"][models[name].__name__]["properties"] for name in ("walk", "embed"))
    assert (walk["walk_length"]["minimum"], walk["walk_length"]["maximum"], walk["walk_length"]["default"]) == (
        1, 1_000_000, 80,
    )  # fmt: skip
    assert (walk["p"]["minimum"], walk["p"]["maximum"]) == (1e-6, 1e6)
    assert embed["optimizer"]["enum"] == ["sgd", "adagrad"]
    assert "search" not in walk["p"]
    assert sorted(walk, key=lambda name: walk[name]["position"])[:4] == ["num_walks", "walk_length", "p", "q"]


@pytest.mark.parametrize(
    ("pool", "kind", "servers", "command"),
    [
        ("superworkflow", "process", "compose", "docker compose up -d worker"),
        ("team", "process", "compose", "python -m superworkflow.worker team"),
        ("superworkflow", "process", "servers.env", "python -m superworkflow.worker superworkflow"),
        ("superworkflow", "kubernetes", "compose", "prefect worker start --pool superworkflow --type kubernetes"),
    ],
)
def test_the_worker_that_serves_a_pool(pool: str, kind: str, servers: str, command: str) -> None:
    assert worker_command(pool, kind, servers) == command


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--set", "walk.p=-1"], "walk.p: input should be greater than or equal to 0.000001"),
        (["--set", "walk.pp=1"], "walk.pp: unknown parameter"),
        (["--cron", "61 2 * * *"], "--cron: Invalid cron string"),
        (["--cron", "0 2 * * *", "--timezone", "Mars/Base"], "--timezone: Invalid timezone"),
        (["--cron", "0 2 * * *", "--interval", "1h"], "not together with --cron"),
        (["--interval", "soon"], "--interval: not a duration"),
        (["--interval", "0.5s"], "--interval: not between 10 s and 10 years (got '0.5 s'). Write one such as 6h"),
        (["--interval", "0d"], "--interval: not between 10 s and 10 years (got '0 s')"),
        (["--interval", "9" * 400 + "d"], "--interval: not between 10 s and 10 years (got 'inf s')"),
        (["--cron", "*/5 0 2 * * *"], "--cron: has a field for seconds"),
        (["--cron", "0 2 31 2 *"], "--cron: no day is in this schedule (got '0 2 31 2 *'). Write minute, hour"),
        (["--timezone", "Europe/Paris"], "only with --cron or --interval"),
        (["--edges", "nowhere.csv"], "--edges: no such file"),
        (["--type", "kubernetes", "--image", "x"], "not visible to the flow's pod"),
        (["--image", "x"], "only for --type kubernetes"),
        (["--variable", "memory"], "not of the form NAME=VALUE"),
        (["--gate", "evaluate.f1>=0.4"], "--gate: no such metric (got 'evaluate.f1>=0.4'). Did you mean"),
        (["--gate", "evaluate.macro_f1"], "--gate: not a gate"),
        (["--tolerance", "-1"], "registration.tolerance: input should be greater than or equal to 0"),
        (["--register", "a/b"], "registration.name: not a name that a model can have"),
        (["--concurrency-limit", "0"], "--concurrency-limit: must be above 0"),
    ],
)
def test_what_is_wrong_is_said_before_the_server_is_asked(
    command_line: CommandLine, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    assert main(_arguments(command_line, "refused", *arguments)) == 2
    assert message in capsys.readouterr().err


def test_times_of_a_schedule_within_a_running_loop() -> None:
    """A notebook's thread has one."""
    from superworkflow.infra.orchestration.deployment import make_schedule, next_times

    async def times() -> list[datetime]:
        return next_times(make_schedule("30 2 * * *", None, None), 2)

    first, second = asyncio.run(times())
    assert [first.hour, first.minute, second - first] == [2, 30, timedelta(days=1)]


def test_no_server(command_line: CommandLine) -> None:
    command_line.environment["PREFECT_API_URL"] = "http://127.0.0.1:9/api"
    assert "Prefect cannot be reached" in _deploy(command_line, "refused", expect=2).err
    command_line.environment["PREFECT_API_URL"] = ""
    assert "a deployment needs a Prefect server" in _deploy(command_line, "refused", expect=2).err


def test_secrets_stay_out(command_line: CommandLine) -> None:
    command_line.environment["MLFLOW_TRACKING_URI"] = "postgresql://me:hidden@db/mlflow"
    answer = _deploy(command_line, "refused", expect=2)
    assert "a deployment must not contain a password" in answer.err
    assert "hidden" not in answer.err


def test_a_kept_pause_is_shown(command_line: CommandLine) -> None:
    _deploy(command_line, "kept", "--interval", "6h", "--pause")
    assert "every 6h (UTC), paused until --no-pause" in _deploy(command_line, "kept", "--interval", "6h").out
    assert "paused" not in _deploy(command_line, "kept", "--interval", "6h", "--no-pause").out


def test_another_store_of_a_name_is_a_warning(command_line: CommandLine, tmp_path: Path) -> None:
    """Two teams on one server may choose the same name."""
    first = _deploy(command_line, "taken")
    assert "replaces" not in first.err + _deploy(command_line, "taken").err
    other = _deploy(command_line, "taken", "--store", str(tmp_path / "other"))
    assert f"on pool {POOL} and store {command_line.store}" in other.err.replace("\n", " ")


def test_registered_updated_removed(command_line: CommandLine, prefect_api: str, tmp_path: Path) -> None:
    profile = tmp_path / "mine.yaml"
    profile.write_text("concurrency: 2\ndefault: {resources: {cpu: 1, memory: 1Gi}}\n")
    first = _deploy(command_line, "shown", "--cron", "0 2 * * *", "--timezone", "Europe/Paris", "--pause",
                    "--collisions", "wait", "--json")  # fmt: skip
    assert _collision(prefect_api, first.document["id"]) == "SCHEDULED"
    again = _deploy(command_line, "shown", "--interval", "6h", "--profile", str(profile), "--json",
                    "--variable", "env={OF_MINE: x}")  # fmt: skip
    assert _collision(prefect_api, again.document["id"]) == "CANCELLED"
    assert (first.document["created"], again.document["created"]) == (True, False)
    assert first.document["id"] == again.document["id"]
    found = ask("GET", f"{prefect_api}/deployments/name/node2vec/shown").json()
    assert [schedule["schedule"]["interval"] for schedule in found["schedules"]] == [6 * 3600]
    assert found["paused"], "a pause is kept until --no-pause"
    assert (first.document["paused"], again.document["paused"]) == (True, True)
    assert [each.partition(" ")[2][:8] for each in first.document["next"]] == ["02:00:00"] * 3
    ask("POST", f"{prefect_api}/deployments/{found['id']}/schedule", {"min_runs": 3}).raise_for_status()
    chosen = {"deployments": {"id": {"any_": [found["id"]]}}, "sort": "EXPECTED_START_TIME_ASC", "limit": 3}
    due = ask("POST", f"{prefect_api}/flow_runs/filter", chosen).json()
    assert again.document["next"] == [
        datetime.fromisoformat(each["expected_start_time"]).isoformat(" ", "seconds") for each in due
    ]
    assert found["entrypoint"] == "superworkflow.deployed.node2vec"
    # Without a step of our own, a worker would copy the folder in which it runs.
    assert found["pull_steps"] == [{"superworkflow.deployed.installed": {}}]
    assert found["enforce_parameter_schema"]
    variables = {**DEPLOYED_RETRIES, "OF_MINE": "x"}
    assert found["job_variables"]["env"].items() >= variables.items(), "six minutes, on whatever worker"
    kept = found["parameters"]["profile"]
    assert kept.startswith(f"{command_line.store}/.deployed/")
    assert Path(kept).read_text() == profile.read_text()
    unknown = _deploy(command_line, "shown", "--variable", "memory=2Gi", expect=2)
    assert "has no such variable (got 'memory')" in unknown.err
    other = _deploy(command_line, "shown", "--pool", POOL, "--type", "kubernetes", "--image", "x",
                    "--profile", str(_for_cluster(tmp_path)), expect=2)  # fmt: skip
    assert "this work pool is of another type than kubernetes (got 'process')" in other.err
    assert "removed" in _deploy(command_line, "shown", "--remove").out
    assert ask("GET", f"{prefect_api}/deployments/name/node2vec/shown").status_code == 404
    assert "not there" in _deploy(command_line, "shown", "--remove").out


def test_a_worker_makes_the_pool_first(
    command_line: CommandLine, prefect_api: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pool, read = "pool-of-a-worker", SyncPrefectClient.read_work_pool

    def read_before_the_worker(client: SyncPrefectClient, name: str) -> WorkPool:
        monkeypatch.undo()
        try:
            return read(client, name)
        finally:
            template = ProcessWorker.get_default_base_job_template()
            client.create_work_pool(WorkPoolCreate(name=name, type="process", base_job_template=template))

    monkeypatch.setattr(SyncPrefectClient, "read_work_pool", read_before_the_worker)
    with temporary_settings({PREFECT_API_URL: prefect_api}):
        command_line.here("deploy", "node2vec", "--name", "late", "--pool", pool, "--edges", str(command_line.edges))
        command_line.here("prune", "--keep", "champions,30d", "--deploy", "weekly", "--interval", "7d", "--pool", pool)
    found = ask("GET", f"{prefect_api}/deployments/name/node2vec/late").json()
    assert found["work_pool_name"] == pool
    pruning = ask("GET", f"{prefect_api}/deployments/name/prune/weekly").json()
    assert [schedule["schedule"]["interval"] for schedule in pruning["schedules"]] == [7 * 86_400]
    assert (pruning["work_pool_name"], pruning["parameters"]["keep"]) == (pool, "champions,30d")
    assert pruning["global_concurrency_limit"]["limit"] == 1


def test_a_deployed_prune_reads_its_profile_from_the_store(
    command_line: CommandLine, prefect_api: str, tmp_path: Path
) -> None:
    (tmp_path / "mine.yaml").write_text("launcher: process\n")
    more = ("--deploy", "kept", "--pool", "prunes", "--profile", str(tmp_path / "mine.yaml"))
    with temporary_settings({PREFECT_API_URL: prefect_api}):
        command_line.here("prune", "--keep", "champions", *more)
    profile = ask("GET", f"{prefect_api}/deployments/name/prune/kept").json()["parameters"]["profile"]
    assert profile.startswith(str(command_line.store))
    assert Path(profile).read_text() == "launcher: process\n"


@pytest.fixture(scope="module")
def worker(
    prefect_api: str, graph_files: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[None]:
    """A real worker of the pool."""
    folder = tmp_path_factory.mktemp("worker")
    environment = {"PREFECT_API_URL": prefect_api, "MLFLOW_TRACKING_URI": ""}
    _deploy(CommandLine(folder / "store", *graph_files, environment), "nightly")  # makes the pool
    with running_worker(POOL, "process", folder / "worker", environment):
        yield


@pytest.mark.slow
@pytest.mark.usefixtures("worker")
def test_run_from_the_deployment(command_line: CommandLine, prefect_api: str, tmp_path: Path) -> None:
    labels = tmp_path / "labels.csv"
    labels.write_text(command_line.labels.read_text())
    tracking = f"sqlite:///{tmp_path}/mlflow.db"
    command_line.environment["MLFLOW_TRACKING_URI"] = tracking
    deployment = _deploy(command_line, "nightly", "--labels", str(labels), "--json").document["id"]

    url = f"{prefect_api}/deployments/{deployment}/create_flow_run"
    refused = ask("POST", url, {"parameters": {"walk": {"p": 0}}})
    assert refused.status_code == 409
    assert "walk.p" in refused.text

    first = start_run(prefect_api, deployment)
    assert wait_for_state(prefect_api, first, "Completed")["deployment_id"] == deployment
    assert_tasks(prefect_api, first, dict.fromkeys(STAGES, "Completed"))
    artifacts = ask("POST", f"{prefect_api}/artifacts/filter", {"artifacts": {"flow_run_id": {"any_": [first]}}}).json()
    assert {"stages", "tracking-run"} <= {each["key"] for each in artifacts}
    client = MlflowClient(tracking)
    (experiment,) = client.search_experiments(filter_string="name = 'superworkflow'")
    (run,) = client.search_runs([experiment.experiment_id], f"tags.`superworkflow.flow_run_id` = '{first}'")
    assert run.info.status == "FINISHED"
    assert {each.dataset.name for each in run.inputs.dataset_inputs} == {"edges", "labels"}
    assert f"/runs/flow-run/{first})" in run.data.tags["mlflow.note.content"]
    assert any("macro_f1" in name for name in run.data.metrics)

    version = client.get_model_version_by_alias("node2vec-nightly", "current")
    assert version.run_id == run.info.run_id, "the first model under the deployment's name"

    labels.write_text(labels.read_text() + "v0,team 1\nv1,team 1\n")
    second = start_run(prefect_api, deployment, {"node2vec": {"link_prediction": False}})
    wait_for_state(prefect_api, second, "Completed")
    anew = dict.fromkeys(("label", "evaluate", "publish", "drift"), "Completed")
    # The champion has the same vectors, and so the same figures.
    cached = dict.fromkeys(("index", "walk", "prepare", "embed", "champion-evaluate"), "Cached")
    assert_tasks(prefect_api, second, cached | anew)


@pytest.mark.usefixtures("worker")
def test_scheduled_run_starts_by_itself(command_line: CommandLine, prefect_api: str) -> None:
    """Nobody starts it: the server's scheduler makes the run when it is due, and the worker takes it."""
    settings = ("--interval", "30s", "--concurrency-limit", "1", "--set", "node2vec.link_prediction=false")
    deployment = _deploy(command_line, "often", *settings, "--json").document["id"]
    registered = f"{prefect_api}/deployments/{deployment}"

    def runs(*states: str) -> list[dict[str, Any]]:
        chosen = {"deployments": {"id": {"any_": [deployment]}}, "flow_runs": {"state": {"type": {"any_": states}}}}
        found: list[dict[str, Any]] = ask("POST", f"{prefect_api}/flow_runs/filter", chosen).json()
        return found

    first = eventually(lambda: runs("COMPLETED", "FAILED", "CRASHED"))[0]
    ask("PATCH", registered, {"paused": True}).raise_for_status()
    with contextlib.suppress(AssertionError):  # one more may have been due by then
        eventually(lambda: not runs("PENDING", "RUNNING"), seconds=60)
    ask("DELETE", registered).raise_for_status()
    assert first["state_name"] == "Completed", first["state"]
    assert first["auto_scheduled"]
    assert first["created_by"]["type"] == "SCHEDULE"
    assert list(command_line.store.glob("embed/*/manifest.json"))


WAITS = '''
"""A stage that ends when it is ended, and takes no processor until then."""
import time

from superworkflow import Diagram, Input, Output, Source, Stage, StageRun, Superworkflow


def wait(job: StageRun) -> Output:
    time.sleep(3600)
    return Output(rows=1)


WAIT = Stage(name="wait", run=wait, inputs={"edges": Input("a file", file=True)})


def diagram(flow: Diagram, edges: Source) -> None:
    flow.stage(WAIT, edges=edges)


SUPERWORKFLOW = Superworkflow(
    name="waiting", help="waits", stages=(WAIT,), sources={"edges": "a file"}, diagram=diagram
)
'''


@pytest.mark.slow
@pytest.mark.usefixtures("worker")
def test_cancelled_from_prefect(command_line: CommandLine, prefect_api: str, tmp_path: Path) -> None:
    (code := tmp_path / "waiting.py").write_text(WAITS)
    arguments = ["deploy", str(code), "--name", "nightly", "--pool", POOL, "--edges", str(command_line.edges)]
    arguments += ["--store", str(command_line.store), "--json"]
    run = start_run(prefect_api, _answer(arguments, command_line).document["id"])
    eventually(lambda: task_states(prefect_api, run).get("wait") == "Running" and stages_at(command_line.store))
    cancel_run(prefect_api, run)
    wait_for_state(prefect_api, run, "Cancelled")
    eventually(lambda: not stages_at(command_line.store))
    recorded = recorded_runs(f"sqlite:///{command_line.store}/mlflow/mlflow.db")
    assert [each.status for each in recorded] == ["KILLED"]


def _collision(api: str, deployment: str) -> str:
    """State type of a run that would begin while another is running; the server decides, without a worker."""
    begin = {"state": {"type": "PENDING", "name": "Pending"}}
    runs = [start_run(api, deployment) for _ in range(2)]
    for run in runs:
        ask("POST", f"{api}/flow_runs/{run}/set_state", begin).raise_for_status()
    found: dict[str, Any] = ask("GET", f"{api}/flow_runs/{runs[1]}").json()
    for run in runs:
        ask("DELETE", f"{api}/flow_runs/{run}").raise_for_status()
    return str(found["state_type"])


def _arguments(command_line: CommandLine, name: str, *more: str) -> list[str]:
    arguments = ["deploy", "node2vec", "--name", name, "--pool", POOL]
    arguments += ["--edges", str(command_line.edges), "--labels", str(command_line.labels)]
    return [*arguments, "--store", str(command_line.store), "--set", *SMALL, *more]


def _deploy(command_line: CommandLine, name: str, *more: str, expect: int = 0) -> Answer:
    return _answer(_arguments(command_line, name, *more), command_line, expect)


def _answer(arguments: list[str], command_line: CommandLine, expect: int = 0) -> Answer:
    done = warm.run(arguments, env=os.environ | command_line.environment, timeout=120)
    assert done.returncode == expect, f"exit {done.returncode}\n{done.stderr[-4000:]}"
    return Answer(done.returncode, done.stdout, done.stderr)


def _for_cluster(folder: Path) -> Path:
    path = folder / "cluster.yaml"
    volumes = [{"mount_path": str(folder.parent.parent.parent), "host_path": "/x"}]
    path.write_text(json.dumps({"launcher": "kubernetes", "kubernetes": {"volumes": volumes}}))
    return path
