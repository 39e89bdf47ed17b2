"""Resources and the profiles that give them."""

from pathlib import Path

import pytest
from pydantic import ValidationError

from superworkflow.infra.base.errors import UserError
from superworkflow.infra.config.profile import Placement, load_profile, profile_names
from superworkflow.infra.contract.resources import Executors, Resources, format_bytes, parse_bytes
from superworkflow.infra.engines import engine
from superworkflow.infra.process.threads import available_cpus

PROFILE = """
description: For tests.
concurrency: 2
prices: my-prices.yaml
default: {resources: {cpu: 4, memory: 8Gi, gpu: {type: T4}}}
stages:
  walk: {engine: spark, resources: {memory: 16Gi, executors: {count: 3, cpu: 4, memory: 10Gi}}}
  embed: {image: torch, resources: {gpu: {count: 2}}}
  holdout-embed: {resources: {cpu: 1}}
  index:
"""


@pytest.mark.parametrize(
    ("text", "value"),
    [("512Mi", 512 << 20), ("16Gi", 16 << 30), ("1G", 10**9), ("1.5Gi", 3 << 29), ("0", 0), (7, 7), ("2 KiB", 2048),
     ("1Ti", 1 << 40), ("3K", 3000)],
)  # fmt: skip
def test_parse_bytes(text: object, value: int) -> None:
    assert parse_bytes(text) == value


@pytest.mark.parametrize("text", ["", "much", "-1Gi", "1Zi", "1,5Gi", "Gi", None])
def test_not_bytes(text: object) -> None:
    with pytest.raises(ValueError, match="not a quantity of bytes such as 512Mi"):
        parse_bytes(text)


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0 B"), (1023, "1023 B"), (1024, "1.0 KiB"), (3 << 29, "1.5 GiB"), (5000 << 40, "5000.0 TiB")],
)  # fmt: skip
def test_format_bytes(value: int, text: str) -> None:
    assert format_bytes(value) == text


def test_all_processors() -> None:
    assert Resources.model_validate({"cpu": "all"}).cpu == available_cpus() >= 1


@pytest.mark.parametrize(("cpu", "threads"), [(0.5, 1), (1, 1), (3.9, 3)])
def test_threads(cpu: float, threads: int) -> None:
    assert Resources(cpu=cpu).threads == threads


@pytest.mark.parametrize("values", [{"cpu": 0}, {"memory": "x"}, {"gpu": {"count": -1}}, {"disk": 1}])
def test_bad_resources(values: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        Resources.model_validate(values)


def test_entries_are_merged_with_the_default(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text(PROFILE)
    profile = load_profile(str(tmp_path / "mine.yaml"))
    assert (profile.name, profile.concurrency, profile.prices) == ("mine", 2, "my-prices.yaml")
    walk = profile.stages["walk"]
    assert walk.engine == "spark"
    assert (walk.resources.cpu, walk.resources.memory) == (4, 16 << 30)
    assert profile.placement("walk", "walk").resources == walk.resources.only()  # on one machine it has no executors
    on_cluster = profile.model_copy(update={"launcher": "kubernetes"})
    assert on_cluster.placement("walk", "walk") == walk
    embed = profile.placement("embed", "embed")
    assert (embed.engine, embed.image) == ("in-process", "torch")
    assert (embed.resources.gpu.count, embed.resources.gpu.type) == (2, "T4")
    assert profile.placement("index", "index") == profile.default
    assert profile.placement("publish", "publish") == profile.default


def test_workers_are_counted_by_the_profile() -> None:
    """A run is refused at its start, not when the stage starts."""
    workers = engine("workers")
    with pytest.raises(UserError, match=r"stages\.train: the stage needs a worker group, and .* name no workers"):
        workers.check(Resources(), "stages.train")
    workers.check(Resources.model_validate({"workers": {"count": 2, "cpu": 1, "memory": "1Gi"}}), "stages.train")
    engine("in-process").check(Resources(), "stages.train")


def test_workers_have_one_role_or_several(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(
        "stages:\n"
        "  one: {engine: workers, resources: {workers: {count: 4, cpu: 2, memory: 8Gi, shm: 1Gi}}}\n"
        "  two:\n    engine: workers\n    resources:\n      workers:\n"
        "        graph: {count: 2, cpu: 4, memory: 16Gi, gpu: {count: 1, type: T4}}\n"
        "        tensor: {count: 3, cpu: 0.5, memory: 1Gi}\n"
    )
    profile = load_profile(str(path))
    one, two = (profile.placement(name, name).resources for name in ("one", "two"))
    assert list(one.groups) == ["worker"]
    assert one.groups["worker"].each == Resources(cpu=2, memory=8 << 30, shm=1 << 30)
    assert list(two.groups) == ["graph", "tensor"]
    assert two.memory_of("graph") == 16 << 30
    assert two.with_memory(32 << 30, "graph").memory_of("graph") == 32 << 30
    assert Resources.model_validate_json(two.model_dump_json()) == two
    assert two.only() == Resources()


def test_nodes_of_a_stage_add_to_those_of_the_profile(tmp_path: Path) -> None:
    text = """
        kubernetes: {node_selector: {zone: a}, tolerations: [{key: graphs}]}
        default: {node_selector: {pool: any}}
        stages: {walk: {node_selector: {pool: spot}, tolerations: [{key: spot, effect: NoSchedule}]}}
    """
    (tmp_path / "p.yaml").write_text(text)
    profile = load_profile(str(tmp_path / "p.yaml"))
    walk, index = (profile.placement(name, name).on(profile.kubernetes) for name in ("walk", "index"))
    assert walk.node_selector == {"zone": "a", "pool": "spot"}
    assert [each.key for each in walk.tolerations] == ["graphs", "spot"]
    assert index.node_selector == {"zone": "a", "pool": "any"}
    assert [each.key for each in index.tolerations] == ["graphs"]
    assert Placement().on(profile.kubernetes) is profile.kubernetes


def test_node_before_stage_before_default(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text(PROFILE)
    profile = load_profile(str(tmp_path / "mine.yaml"))
    assert profile.placement("holdout-embed", "embed").resources.cpu == 1
    assert profile.placement("holdout-embed", "embed").resources.gpu.count == 0
    assert profile.placement("holdout-walk", "walk") == profile.placement("walk", "walk")


@pytest.mark.parametrize("name", profile_names())
def test_shipped_profiles_load(name: str) -> None:
    assert load_profile(name).name == name


def test_a_superworkflow_adds_entries_by_the_variant(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text(PROFILE + "variant: small\n")
    small = {"walk": {"engine": "in-process"}, "publish": {"resources": {"memory": "1Gi"}}}
    profile = load_profile(str(tmp_path / "mine.yaml"), {"small": small, "other": {"x": {}}})
    assert profile.placement("walk", "walk").engine == "spark", "the file's own entry wins"
    publish = profile.placement("publish", "publish").resources
    assert (publish.memory, publish.cpu) == (1 << 30, 4)
    assert "x" not in profile.stages


def test_unknown_profile() -> None:
    with pytest.raises(UserError, match=r"--profile: no such profile \(got 'labtop'\). Did you mean laptop\?"):
        load_profile("labtop")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("launcher: rocket", r"bad.yaml: launcher: .*\(got 'rocket'\)"),
        ("stages: {walk: {resources: {cpu: -1}}}", r"bad.yaml: stages.walk.resources.cpu: .*\(got -1\)"),
        ("stages: {walk: {resources: {memory: lots}}}", r"bad.yaml: stages.walk.resources.memory: .*512Mi.*'lots'"),
        ("stages: {walk: {cpu: 2}}", r"bad.yaml: stages.walk.cpu: "),
        ("stages: [walk]", r"bad.yaml: stages: must be a mapping"),
        ("stages: {walk: 4Gi}", r"bad.yaml: stages.walk: must be a mapping \(got '4Gi'\)"),
        ("default: 4Gi", r"bad.yaml: default: must be a mapping"),
        ("default: {resources: 4Gi}", r"bad.yaml: default.resources: "),
        ("concurrency: 0", r"bad.yaml: concurrency: "),
        ("stages: {walk: {resources: {", r"bad.yaml:1: not valid YAML"),
    ],
)
def test_bad_profile_names_the_dotted_path(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "bad.yaml").write_text(text)
    with pytest.raises(UserError, match=message):
        load_profile(str(tmp_path / "bad.yaml"))


def test_there_are_no_fewer_executors_at_most_than_at_first(tmp_path: Path) -> None:
    path = tmp_path / "bad.yaml"
    path.write_text("stages: {walk: {resources: {executors: {count: 4, max: 3, cpu: 1, memory: 1Gi}}}}")
    with pytest.raises(UserError, match=r"executors: max \(3\) is less than count \(4\)"):
        load_profile(str(path))
    found = [Executors(count=4, max=most, cpu=1, memory=1 << 30) for most in (None, 4, 30)]
    assert [(each.elastic, each.largest) for each in found] == [(False, 4), (False, 4), (True, 30)]


@pytest.mark.parametrize(
    ("workers", "message"),
    [
        ("{}", "stages.walk.resources.workers: names no role"),
        ("{count: 0, cpu: 1, memory: 1Gi}", "workers.worker: count may be 0 for elastic roles"),
        ("{count: 2, cpu: 1}", "workers.worker.memory: Field required"),
        (
            "{graph: {count: 2, cpu: 1, memory: 1Gi, mist: 64}}",
            "workers.graph.mist: no such key (got 64). Did you mean most?",
        ),
        (
            "{graph: {count: 2, cpu: 1, memory: 1Gi, engine: dask}}",
            "graph.engine: no such key (got 'dask'). It is a key",
        ),
        ("{graph: {count: 2, cpu: 1, memory: 1Gi, most: -1}}", "workers.graph.most: Input should be greater than or"),
        ("{graph: {count: 2, cpu: 1, memory: 1Gi, most: 1}}", "workers.graph: most (1) is less than"),
        (
            "{graph: {count: 2, cpu: 1, memory: 1Gi, most: 4, gpu: {count: 1}}}",
            "workers.graph: elastic roles (`most`) have no GPUs",
        ),
        ("{Graph: {count: 2, cpu: 1, memory: 1Gi}}", "workers.Graph.[key]: String should match pattern"),
        ("{executor: {count: 2, cpu: 1, memory: 1Gi}}", "a role of workers may not be called executor"),
    ],
)
def test_bad_workers_name_the_dotted_path(tmp_path: Path, workers: str, message: str) -> None:
    path = tmp_path / "bad.yaml"
    path.write_text(f"stages: {{walk: {{engine: workers, resources: {{workers: {workers}}}}}}}")
    with pytest.raises(UserError) as raised:
        load_profile(str(path))
    assert message in str(raised.value)


def test_missing_profile_file(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="cannot be read: No such file"):
        load_profile(str(tmp_path / "none.yaml"))
