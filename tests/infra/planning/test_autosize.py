"""Resources that a profile leaves to the estimate."""

import io
import os
from pathlib import Path
from typing import Any

import pytest

from superworkflow.infra.base.errors import UserError
from superworkflow.infra.config.profile import load_profile
from superworkflow.infra.config.request import Request, build_request
from superworkflow.infra.contract.stage import Estimate, Progress, Resources
from superworkflow.infra.launch.base import Launched, Launcher, StageCall
from superworkflow.infra.launch.memory_history import Sizing
from superworkflow.infra.launch.run_stage import execute
from superworkflow.infra.orchestration.run_node import run_node
from superworkflow.infra.planning.autosize import HEADROOM, SizeLimits, choose, limits
from superworkflow.infra.planning.plan import plan
from superworkflow.infra.process.threads import available_cpus
from tests.toy_stages import COUNT, SCALE, TOY

MOST = SizeLimits(cpu=16, memory=8 << 30, target_s=100)
BOTH = ("cpu", "memory")


def _estimate(cpu_s: float, parallel: float, memory: int) -> Any:
    return lambda resources: Estimate(memory_bytes=memory, cpu_s=cpu_s, output_bytes=0, parallel=parallel)


@pytest.mark.parametrize(
    ("cpu_s", "parallel", "cpu"),
    [
        (50, 1.0, 1),  # soon enough on one
        (390, 1.0, 4),  # as many as it takes
        (390, 0.95, 5),
        (1e6, 1.0, 16),  # never soon enough: the cap
        (1e6, 0.5, 2),  # two are busy for two thirds of the time, three for half
        (1e6, 0.0, 1),
    ],
)
def test_fewest_processors_for_the_time(cpu_s: float, parallel: float, cpu: int) -> None:
    assert choose(Resources(cpu=9), BOTH, _estimate(cpu_s, parallel, 1), MOST).cpu == cpu


@pytest.mark.parametrize(
    ("memory", "chosen"),
    [(1, 512 << 20), (1 << 30, 1280 << 20), ((1 << 30) + 1, 1536 << 20), (7 << 30, 8 << 30), (99 << 30, 8 << 30)],
)
def test_memory_has_room_and_a_cap(memory: int, chosen: int) -> None:
    assert choose(Resources(), BOTH, _estimate(1, 0, memory), MOST).memory == chosen
    assert chosen >= min(memory * HEADROOM, MOST.memory)


def test_memory_is_for_the_processors_that_were_chosen() -> None:
    def estimate(resources: Resources) -> Estimate:
        return Estimate(memory_bytes=resources.threads << 30, cpu_s=400, output_bytes=0, parallel=1)

    assert choose(Resources(), BOTH, estimate, MOST) == Resources(cpu=4, memory=5 << 30)
    assert choose(Resources(cpu=2), ("memory",), estimate, MOST) == Resources(cpu=2, memory=2560 << 20)
    assert choose(Resources(memory="3Gi"), ("cpu",), estimate, MOST) == Resources(cpu=4, memory=3 << 30)


def _profile(folder: Path, text: str) -> str:
    (folder / "p.yaml").write_text(text)
    return str(folder / "p.yaml")


def test_profile_says_auto(tmp_path: Path) -> None:
    text = """
default: {resources: {cpu: auto, memory: auto, shm: 1Gi}}
stages:
  walk: {resources: {memory: 3Gi}}
  embed: {resources: {cpu: 2, memory: 4Gi}}
"""
    profile = load_profile(_profile(tmp_path, text))
    assert profile.default.auto == ("cpu", "memory")
    assert profile.default.resources.shm == 1 << 30
    assert (profile.stages["walk"].auto, profile.stages["walk"].resources.memory) == (("cpu",), 3 << 30)
    assert (profile.stages["embed"].auto, profile.stages["embed"].resources.cpu) == ((), 2)
    assert type(profile).model_validate(profile.model_dump()) == profile
    with pytest.raises(UserError, match=r"default.resources.shm: .*auto"):
        load_profile(_profile(tmp_path, "default: {resources: {shm: auto}}"))


def test_limits(tmp_path: Path) -> None:
    cluster = load_profile(
        _profile(tmp_path, "{launcher: kubernetes, kubernetes: {cpu_cap: 3, memory_cap: 5Gi, target_s: 7}}")
    )
    assert limits(cluster) == SizeLimits(3, 5 << 30, 7)
    here = limits(load_profile("laptop"))
    assert here.cpu == available_cpus()
    assert here.memory == os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


AUTO = (
    "{kubernetes: {target_s: 2, memory_cap: 64Gi, cpu_cap: 4, pod_start_s: 30}, launcher: %s, "
    "default: {resources: {cpu: auto, memory: auto}}}"
)


def _request(folder: Path, launcher: str, text: str = "123456789\n" * 5) -> Request:
    (folder / "text.txt").write_text(text)
    return build_request(
        TOY, sources={"text": str(folder / "text.txt")}, profile=_profile(folder, AUTO % launcher),
        store=str(folder / "store"),
    )  # fmt: skip


def test_plan_chooses_from_what_it_expects(tmp_path: Path) -> None:
    count, scale = plan(_request(tmp_path, "kubernetes"))
    # count: 10 s, half of it parallel; 1 GiB and a quarter
    assert count.resources == Resources(cpu=2, memory=1280 << 20)
    assert count.seconds == pytest.approx(30 + 10 * (0.5 + 0.5 / 2))
    # scale: five lines expected, 5 s all parallel
    assert scale.resources == Resources(cpu=3, memory=512 << 20)
    assert (count.fits, scale.fits) == (True, True)
    here = plan(_request(tmp_path, "process"))
    assert here[0].seconds < 30
    assert here[0].resources.cpu <= available_cpus()


def test_plan_starts_with_what_was_needed_before(tmp_path: Path) -> None:
    request = _request(tmp_path, "kubernetes")
    Sizing(request.store.root).remember("count", 1 << 20, 7 << 30)
    assert plan(request)[0].resources.memory == 7 << 30
    Sizing(request.store.root).remember("count", 1 << 20, 999 << 30)
    assert plan(request)[0].resources.memory == 64 << 30
    assert plan(_request(tmp_path, "process"))[0].resources.memory == 1280 << 20


class _InProcess(Launcher):
    """Runs a stage in this process, and keeps what it was asked for."""

    def launch(self, call: StageCall, on_event: Any) -> Launched:
        self.resources = call.placement.resources
        progress = Progress(call.stage, stream=io.StringIO())
        stage = {"count": COUNT, "scale": SCALE}[call.stage]
        made = execute(stage, call.params, call.inputs, call.output, self.resources, progress)
        return Launched(made.manifest.measured, made.reused, 1.0)

    def cancel(self) -> None: ...


def test_launch_chooses_from_true_sizes(tmp_path: Path) -> None:
    """By its bytes the text should have 5 lines; it has 25."""
    request = _request(tmp_path, "kubernetes", "1\n" * 25)
    assert plan(request)[1].resources.cpu == 3
    events: list[Any] = []
    for node in request.diagram.nodes.values():
        launcher = _InProcess()
        record = run_node(node, request, launcher, events.append, {})
        assert record.resources == launcher.resources
        assert events[-1] == {"event": "resources", "resources": launcher.resources}
    assert record.resources.cpu == 4
    assert [stage.state for stage in plan(request)] == ["cached", "cached"]
    events.clear()
    assert run_node(node, request, launcher, events.append, {}).state == "cached"
    assert events == []
