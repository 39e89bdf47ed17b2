"""The registry of engines, and that nothing outside of an engine knows its name."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from superworkflow.__main__ import COMMANDS, INTERNAL, main
from superworkflow.flows import known_names, load_superworkflow, superworkflow_names
from superworkflow.infra.base.errors import UserError
from superworkflow.infra.base.extras import EXTRAS
from superworkflow.infra.base.import_strings import check_import
from superworkflow.infra.config.profile import load_profile, profile_names
from superworkflow.infra.config.profile_names import node_names
from superworkflow.infra.contract.resources import Executors, Resources
from superworkflow.infra.contract.stage import IN_PROCESS, Estimate
from superworkflow.infra.engines import engine, engine_names, engines, member_commands
from superworkflow.infra.launch.kubernetes.engines.base import OnCluster, engine_on_cluster
from tests.second.flows.second import SUPERWORKFLOW as SECOND

ROOT = Path(__file__).parents[3]
ROOMS = ("infra", "superworkflow", "sweeps", "dashboards")
KEYS = {"infra/config/kubernetes.py", "infra/contract/resources.py", "infra/base/extras.py"}
"""Keys of profiles that name an engine: of its service account, of its kind of image, and of its members; its extra."""
ORDINARY = {"workers"}
"""Names that are words of which others have a use as well; as an engine's they would stand in quotes."""


def test_engines_are_found_by_name() -> None:
    assert engine_names()[0] == IN_PROCESS
    assert [each.name for each in engines()] == engine_names()
    with pytest.raises(UserError, match=r"sparc: no such engine\. Did you mean spark\?"):
        engine("sparc")


@pytest.mark.parametrize("name", engine_names())
def test_every_engine_keeps_the_contract(name: str) -> None:
    found = engine(name)
    assert found.packages.items() <= EXTRAS.items()
    assert bool(found.roles) == bool(found.own_role)
    for command, function in found.commands.items():
        assert command not in {**COMMANDS, **INTERNAL}
        check_import(function, name)
    alone = Resources(cpu=3)
    assert found.groups(alone) == {}
    estimate = Estimate(memory_bytes=5 << 20, cpu_s=10, output_bytes=7, start_s=1, parallel=1.0, base_bytes=2 << 20)
    expected = found.expected(estimate, alone, on_cluster=False)
    assert (expected.width, expected.work_s, expected.groups) == (3, 3, {})
    assert expected.own.cpu_s == 10 + expected.start_cpu_s
    assert found.sizing_key("walk", alone) == "walk"
    assert found.used(alone, on_cluster=True) is alone
    check_import(found.on_cluster, name)
    assert isinstance(engine_on_cluster(name), OnCluster)


def test_only_an_engine_spells_its_name() -> None:
    """In process is what every stage does, and no engine's own word."""
    found = []
    for name in engine_names()[1:]:
        module = name.replace("-", "_")
        own = (f"infra/engines/{module}/", f"infra/launch/kubernetes/engines/{module}")
        ordinary = name in ORDINARY
        word = re.compile(rf"['\"]{name}['\"]" if ordinary else rf"(?<![a-z]){name}(?![a-z])", 0 if ordinary else re.I)
        for path in sorted(path for room in ROOMS for path in (ROOT / room).rglob("*.py")):
            where = path.relative_to(ROOT).as_posix()
            lines = path.read_text().splitlines() if not where.startswith(own) and where not in KEYS else []
            found += [f"{where}:{number} {line.strip()}" for number, line in enumerate(lines, 1) if word.search(line)]
    assert found == []


def test_resources_keep_the_groups_that_the_engine_uses() -> None:
    given = Resources.model_validate({"cpu": 1, "executors": {"count": 3, "cpu": 2, "memory": "4Gi"}})
    assert engine("spark").used(given, on_cluster=True) == given
    assert engine("spark").used(given, on_cluster=False) == Resources(cpu=1)  # it runs in the stage's own process
    assert engine(IN_PROCESS).used(given, on_cluster=True) == Resources(cpu=1)
    assert [engine("spark").sizing_key("walk", given, role) for role in ("", "executor")] == [
        "walk.driver",
        "walk.executor",
    ]
    more = given.with_memory(8 << 30, "executor")
    assert (more.memory_of(""), more.memory_of("executor")) == (2 << 30, 8 << 30)
    assert given.with_memory(8 << 30) == given.model_copy(update={"memory": 8 << 30})


def test_a_worker_group_is_as_wide_as_all_roles_together() -> None:
    roles = {"graph": {"count": 2, "cpu": 2, "memory": "4Gi"}, "tensor": {"count": 4, "cpu": 0.5, "memory": "1Gi"}}
    resources = Resources.model_validate({"cpu": 1, "workers": roles})
    estimate = Estimate(memory_bytes=5 << 20, cpu_s=61, output_bytes=7, start_s=1, parallel=1.0)
    for on_cluster in (True, False):
        expected = engine("workers").expected(estimate, resources, on_cluster)
        assert (expected.width, expected.work_s, list(expected.groups)) == (6, 10, ["graph", "tensor"])
        assert expected.own.cpu_s < 5  # it coordinates
        assert (expected.alone_s > 0) == on_cluster  # forked workers are held for as long as the stage
    assert engine("workers").used(resources, on_cluster=False) == resources
    assert engine("workers").sizing_key("train", resources, "tensor") == "train.tensor"


def test_executors_of_dask_have_a_process_for_each_core() -> None:
    estimate = Estimate(memory_bytes=5 << 20, cpu_s=61, output_bytes=7, start_s=1, parallel=1.0)
    dask, resources = engine("dask"), Resources(cpu=1, executors=Executors(count=2, cpu=3, memory=4 << 30))
    expected = dask.expected(estimate, resources, on_cluster=True)
    assert (expected.width, expected.work_s, list(expected.groups)) == (6, 10, ["executor"])
    assert expected.groups["executor"].engine_bytes == 3 * expected.engine_bytes
    assert dask.member_memory(resources) == 4 << 30
    assert dask.used(resources, on_cluster=False) == Resources(cpu=1)  # workers are processes of this machine
    elastic = Resources(executors=Executors(count=2, max=3, cpu=3, memory=4 << 30))
    with pytest.raises(UserError, match=r"resources\.executors\.max: executors of Dask have a fixed number"):
        dask.used(elastic, on_cluster=True)


def test_the_coordinator_does_a_part_of_the_work() -> None:
    """The driver's own work is not the executors', and takes none of their memory."""
    estimate = Estimate(memory_bytes=5 << 20, cpu_s=61, output_bytes=7, start_s=1, base_bytes=2 << 20)
    resources = Resources(cpu=1, executors=Executors(count=2, cpu=1, memory=1 << 30))
    waiting = engine("spark").expected(estimate, resources, on_cluster=True)
    busy = replace(estimate, coordinator_s=20, coordinator_bytes=3 << 20)
    found = engine("spark").expected(busy, resources, on_cluster=True)
    assert found.own.cpu_s - waiting.own.cpu_s == pytest.approx(20)
    assert waiting.groups["executor"].cpu_s - found.groups["executor"].cpu_s == pytest.approx(20)
    assert found.own.memory_bytes - waiting.own.memory_bytes == 3 << 20
    assert found.groups["executor"].memory_bytes == waiting.groups["executor"].memory_bytes


def test_commands_of_members(capsys: pytest.CaptureFixture[str]) -> None:
    assert "executor" in member_commands()
    assert main(["executor"]) == 2
    assert "not in the pod of a Spark executor" in capsys.readouterr().err
    assert main(["dask-worker"]) == 2
    assert "not in the pod of a Dask worker" in capsys.readouterr().err
    assert main(["worker"]) == 2
    assert "SUPERWORKFLOW_WORKER: not in the pod of a worker" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["--help"])
    assert "executor" not in capsys.readouterr().out


def test_unknown_engines_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text("stages: {walk: {engine: sparc}}")
    with pytest.raises(UserError, match=r"mine\.yaml: stages\.walk\.engine: .*\(got 'sparc'\)\. Did you mean spark\?"):
        load_profile(str(path))


def test_names_of_nodes_whatever_the_options() -> None:
    names = node_names(load_superworkflow("node2vec"))
    assert {"index", "label", "holdout", "holdout-walk", "holdout-embed", "publish"} <= names
    assert {"measurements", "fit", "curved", "choose"} == node_names(SECOND)


@pytest.mark.parametrize("name", profile_names())
def test_shipped_profiles_name_what_there_is(name: str) -> None:
    assert load_profile(name).stages.keys() <= known_names().entries
    assert superworkflow_names()


def test_a_misspelt_stage_or_variant_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    edges, profile = tmp_path / "edges.csv", tmp_path / "mine.yaml"
    edges.write_text("a,b\nb,c\n")

    def planned(text: str) -> tuple[int, str]:
        profile.write_text(text)
        given = ["plan", "node2vec", "--edges", str(edges), "--profile", str(profile), "--store", str(tmp_path / "s")]
        return main([*given, "--set", "node2vec.link_prediction=false"]), capsys.readouterr().err

    def placed(stage: str) -> tuple[int, str]:
        return planned(f"stages: {{{stage}: {{resources: {{memory: 1Gi}}}}}}")

    code, error = placed("wlak")
    assert code == 2
    assert re.search(r"mine\.yaml: stages\.wlak: no superworkflow .* Did you mean walk\?", error)
    for name in ("walk", "holdout-walk", "evaluate"):  # also where this diagram leaves them out
        assert placed(name) == (0, "")
    code, error = planned("variant: labtop")
    assert code == 2
    assert re.search(r"mine\.yaml: variant: no superworkflow .* \(got 'labtop'\)\. Did you mean laptop\?", error)
    assert planned("variant: laptop") == (0, "")
