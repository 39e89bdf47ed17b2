"""Requests, diagrams, plans, explanations and records, with a superworkflow of two toy stages."""

import dataclasses
import io
from pathlib import Path
from typing import Any

import pytest

from superworkflow.infra.base.errors import DatasetDamaged, UserError
from superworkflow.infra.config.request import Request, build_request
from superworkflow.infra.contract.diagram import Diagram, Node
from superworkflow.infra.contract.stage import Progress, Resources
from superworkflow.infra.launch.base import Launched
from superworkflow.infra.launch.run_stage import execute
from superworkflow.infra.planning.explain import Difference, explain
from superworkflow.infra.planning.forecast import FORK_S
from superworkflow.infra.planning.plan import plan
from superworkflow.infra.process.threads import available_cpus
from superworkflow.infra.storage.source import Source
from superworkflow.infra.tracking.records import RunRecord, stage_record
from tests.toy_stages import COUNT, GIB, SCALE, TOY

PROFILE = """
default: {resources: {cpu: 2, memory: 1Gi}}
stages:
  scale: {resources: {cpu: 4, memory: 1Ki}}
"""
PRICES = "{date: 2026-01-01, source: by hand, vcpu_hour: 0.36, gib_hour: 0.036}"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A text of five lines (50 bytes), a profile and a price table."""
    (tmp_path / "text.txt").write_text("123456789\n" * 5)
    (tmp_path / "profile.yaml").write_text(PROFILE)
    (tmp_path / "prices.yaml").write_text(PRICES)
    return tmp_path


def _request(folder: Path, *assignments: str, **more: Any) -> Request:
    return build_request(
        TOY, sources={"text": str(folder / "text.txt")}, assignments=assignments,
        profile=str(folder / "profile.yaml"), prices=str(folder / "prices.yaml"), store=str(folder / "store"), **more,
    )  # fmt: skip


def _execute(request: Request, name: str) -> None:
    node = request.diagram.nodes[name]
    inputs = {
        key: given.uri if isinstance(given, Source) else request.store.location(given.stage.name, given.digest).uri
        for key, given in node.inputs.items()
    }
    place = request.store.location(node.stage.name, node.digest)
    progress = Progress(name, stream=io.StringIO())
    execute(node.stage, node.params.model_dump(mode="json"), inputs, place.uri, Resources(), progress)


class TestRequest:
    """Requests of users."""

    def test_parameters_between_file_and_command_line(self, folder: Path) -> None:
        (folder / "my.yaml").write_text("{count: {skip: 1}, scale: {factor: 3, seconds: 3}}")
        request = _request(
            folder, "scale.factor=5",
            config=str(folder / "my.yaml"), parameters={"scale": {"factor": 4, "seconds": 4}, "toy": {"twice": True}},
        )  # fmt: skip
        assert request.flat_params() == {
            "count.skip": 1, "scale.factor": 5.0, "scale.seconds": 4.0, "scale.end": "well", "toy.twice": True,
        }  # fmt: skip
        assert list(request.diagram.nodes) == ["count", "scale", "scale-again"]

    def test_missing_source(self, folder: Path) -> None:
        with pytest.raises(UserError, match=r"text: toy needs a text file. Give it with --text FILE"):
            build_request(TOY, sources={})

    def test_nothing_is_written(self, folder: Path) -> None:
        _request(folder)
        assert not (folder / "store").exists()

    @pytest.mark.parametrize(
        ("profile", "path"),
        [
            ("stages: {scale: {engine: spark}}", "stages.scale.engine"),
            ("stages: {scale-again: {engine: spark}}", "stages.scale-again.engine"),
            ("{default: {engine: spark}, stages: {count: {}}}", "default.engine"),
        ],
    )
    def test_an_engine_that_a_stage_does_not_have(self, folder: Path, profile: str, path: str) -> None:
        (folder / "profile.yaml").write_text(profile)
        with pytest.raises(UserError, match=rf"^profile profile: {path}: stage scale .*'spark'.*Valid.*: in-process"):
            _request(folder, "toy.twice=true")

    def test_an_engine_that_a_stage_has(self, folder: Path) -> None:
        digests = {name: node.digest for name, node in _request(folder).diagram.nodes.items()}
        (folder / "profile.yaml").write_text("stages: {count: {engine: spark}}")
        request = _request(folder)
        assert request.profile.placement("count", "count").engine == "spark"
        assert {name: node.digest for name, node in request.diagram.nodes.items()} == digests

    def test_unknown_profile_and_prices(self, folder: Path) -> None:
        sources = {"text": str(folder / "text.txt")}
        with pytest.raises(UserError, match="--profile: no such profile"):
            build_request(TOY, sources=sources, profile="moon")
        with pytest.raises(UserError, match="--prices: no such price table"):
            build_request(TOY, sources=sources, prices="moon")


class TestDiagram:
    """Names of datasets before anything runs."""

    def test_digest_follows_from_what_is_upstream(self, folder: Path) -> None:
        def digests(*assignments: str) -> list[str]:
            return [node.digest for node in _request(folder, *assignments).diagram.nodes.values()]

        before = digests()
        assert digests() == before
        assert digests("scale.seconds=9") == before  # does not affect the result
        scaled = digests("scale.factor=3")
        assert scaled[0] == before[0]
        assert scaled[1] != before[1]
        skipped = digests("count.skip=1")
        assert skipped[0] != before[0]
        assert skipped[1] != before[1]
        (folder / "text.txt").write_text("other\n")
        changed = digests()
        assert changed[0] != before[0]
        assert changed[1] != before[1]

    def test_same_as_the_stage_itself_says(self, folder: Path) -> None:
        """`execute` refuses an output that ends in another digest than its own only when one is there."""
        request = _request(folder)
        for name, node in request.diagram.nodes.items():
            _execute(request, name)
            dataset = request.store.find(node.stage.name, node.digest)
            assert dataset is not None
            assert dataset.digest == node.digest

    def test_wrong_wiring_is_a_fault_of_the_diagram(self, folder: Path) -> None:
        request = _request(folder)
        text = Source.of(folder / "text.txt")
        flow = Diagram(request.params, request.params["toy"])
        count = flow.stage(COUNT, text=text)
        with pytest.raises(ValueError, match="name taken"):
            flow.stage(COUNT, text=text)
        with pytest.raises(ValueError, match=r"missing inputs: number$"):
            flow.stage(SCALE, number=None)
        with pytest.raises(ValueError, match=r"unknown inputs: numbers \(it has number, other\)$"):
            flow.stage(SCALE, number=count, numbers=count)

    def test_upstream(self, folder: Path) -> None:
        nodes = _request(folder, "toy.twice=true").diagram.nodes
        assert nodes["count"].upstream == []
        assert nodes["scale-again"].upstream == [nodes["count"], nodes["count"]]


class TestPlan:
    """Predictions."""

    def test_predicted_stats_reach_the_next_stage(self, folder: Path) -> None:
        count, scale = plan(_request(folder))
        # 50 bytes / 10; half of the 10 s divides between 2 threads
        assert (count.state, count.memory_bytes, count.cpu_s, count.output_bytes) == ("run", GIB, 10.0, 8)
        assert count.seconds == pytest.approx(FORK_S + 7.5)
        # 2 × 0.36 + 1 × 0.036 = 0.756 USD an hour
        assert count.cost_usd == pytest.approx(0.756 * (FORK_S + 7.5) / 3600)
        # five lines: 500 bytes, 5 s on 4 threads, if there are that many
        assert (scale.state, scale.memory_bytes, scale.cpu_s) == ("run", 500, 5.0)
        assert scale.seconds == pytest.approx(FORK_S + max(1.25, 5 / available_cpus()))
        assert scale.end_s == pytest.approx(count.seconds + scale.seconds)
        assert (count.basis, scale.basis) == ("built-in", "built-in")
        assert (count.fits, scale.fits) == (True, True)
        assert count.output.startswith(f"{folder}/store/count/")

    def test_too_little_memory(self, folder: Path) -> None:
        (folder / "text.txt").write_text("123456789\n" * 11)
        assert [stage.fits for stage in plan(_request(folder))] == [True, False]

    def test_cached_stage_shows_what_it_took_and_passes_its_true_stats(self, folder: Path) -> None:
        (folder / "text.txt").write_text("1\n" * 25)  # the prediction is 5 lines, the truth 25
        request = _request(folder)
        _execute(request, "count")
        dataset = request.store.find("count", request.diagram.nodes["count"].digest)
        assert dataset is not None
        measured = dataset.manifest.measured
        count, scale = plan(request)
        assert count.state == "cached"
        assert (count.memory_bytes, count.cpu_s, count.seconds) == (
            measured.peak_memory_bytes, measured.cpu_s, measured.runtime_s,
        )  # fmt: skip
        assert (count.cost_usd, count.fits) == (0.0, True)
        assert (scale.state, scale.memory_bytes) == ("run", 2500)

    def test_damaged_dataset_is_named_before_anything_starts(self, folder: Path) -> None:
        request = _request(folder)
        _execute(request, "count")
        place = request.store.location("count", request.diagram.nodes["count"].digest)
        place.join("lines.npy").write_atomic("altered")
        with pytest.raises(DatasetDamaged, match="truncated or altered"):
            plan(request)


class TestExplain:
    """Why a stage is cached, or not."""

    def test_empty_store(self, folder: Path) -> None:
        for explanation in explain(_request(folder)):
            assert not explanation.cached
            assert str(explanation) == "will run: the store has no dataset of this stage"

    def test_cached(self, folder: Path) -> None:
        request = _request(folder)
        _execute(request, "count")
        count, scale = explain(request)
        assert count.cached
        assert str(count).startswith("cached, made 20")
        assert not scale.cached

    def test_a_file_is_gone(self, folder: Path) -> None:
        request = _request(folder)
        _execute(request, "count")
        assert request.missing_stages() == ["scale"]
        node = request.diagram.nodes["count"]
        request.store.open("count", node.digest).location.join("lines.npy").delete()
        count, _ = explain(request)
        assert (count.cached, count.differences) == (False, ())
        assert str(count) == "will run: a file of its dataset is gone"
        assert [stage.state for stage in plan(request)] == ["run", "run"]
        assert request.missing_stages() == ["count", "scale"]
        assert not request.is_complete()

    def test_parameter(self, folder: Path) -> None:
        for name in ("count", "scale"):
            _execute(_request(folder), name)
        count, scale = explain(_request(folder, "scale.factor=3", "scale.seconds=1"))
        assert count.cached
        assert scale.differences == (Difference("parameter", "scale.factor", 2.0, 3.0),)
        assert str(scale) == "will run: scale.factor: 2.0 → 3.0"

    def test_input(self, folder: Path) -> None:
        request = _request(folder)
        for name in ("count", "scale"):
            _execute(request, name)
        before = request.diagram.nodes
        (folder / "text.txt").write_text("one\n")
        request = _request(folder)
        count, scale = explain(request)
        digest = Source.of(folder / "text.txt").digest
        assert count.differences == (Difference("input", "text", before["count"].inputs["text"].digest, digest),)
        assert str(scale) == "will run: input number differs"
        assert scale.differences[0].now == request.diagram.nodes["count"].digest

    def test_version(self, folder: Path) -> None:
        request = _request(folder)
        for name in ("count", "scale"):
            _execute(request, name)
        newer = dataclasses.replace(SCALE, version="4")

        def diagram(flow: Diagram, text: Source, other: Source | None) -> None:
            flow.stage(newer, number=flow.stage(COUNT, text=text))

        superworkflow = dataclasses.replace(TOY, stages=(COUNT, newer), diagram=diagram)
        _, scale = explain(dataclasses.replace(request, diagram=superworkflow.build(request.params, request.sources)))
        assert scale.differences == (Difference("version", "version", "3", "4"),)
        assert str(scale) == "will run: stage version: 3 → 4"

    def test_an_empty_text_is_shown(self) -> None:
        assert str(Difference("parameter", "train.weight", "", "rating")) == "train.weight: '' → rating"

    def test_optional_input_that_was_not_there(self, folder: Path) -> None:
        for name in ("count", "scale"):
            _execute(_request(folder), name)
        again = explain(_request(folder, "toy.twice=true"))[2]
        assert [(each.kind, each.name, each.before) for each in again.differences] == [("input", "other", None)]

    def test_nearest_has_the_fewest_differences(self, folder: Path) -> None:
        _execute(_request(folder), "count")
        _execute(_request(folder, "scale.factor=7"), "scale")
        (folder / "text.txt").write_text("one\n")  # newer, and further away: another factor and another input
        _execute(_request(folder), "count")
        _execute(_request(folder, "scale.factor=8"), "scale")
        (folder / "text.txt").write_text("123456789\n" * 5)
        scale = explain(_request(folder, "scale.factor=9"))[1]
        assert scale.differences == (Difference("parameter", "scale.factor", 7.0, 9.0),)

    def test_newest_among_equals(self, folder: Path) -> None:
        _execute(_request(folder), "count")
        for factor in (7, 5, 6):
            _execute(_request(folder, f"scale.factor={factor}"), "scale")
        assert explain(_request(folder))[1].differences == (Difference("parameter", "scale.factor", 6.0, 2.0),)


class TestRecords:
    """Records of runs."""

    def _records(self, request: Request, launched: Launched | None) -> list[Any]:
        found = []
        for node in request.diagram.nodes.values():
            dataset = request.store.find(node.stage.name, node.digest)
            assert dataset is not None
            resources = request.profile.placement(node.name, node.stage.name).resources
            found.append(stage_record(node, dataset.manifest, dataset.uri, resources, request.prices, launched))
        return found

    @pytest.fixture
    def request_(self, folder: Path) -> Request:
        request = _request(folder)
        for name in ("count", "scale"):
            _execute(request, name)
        return request

    def _launched(self, request: Request, *, reused: bool) -> Launched:
        node: Node = request.diagram.nodes["count"]
        dataset = request.store.find("count", node.digest)
        assert dataset is not None
        return Launched(dataset.manifest.measured, reused, 20.0)

    def test_ran(self, request_: Request) -> None:
        count, scale = self._records(request_, self._launched(request_, reused=False))
        assert (count.state, count.runtime_s, count.rows, count.bytes) == ("ran", 20.0, 5, 136)
        assert count.cost_usd == pytest.approx(0.756 * 20 / 3600)
        assert count.rows_per_s == 0.25
        assert (count.saved_s, count.saved_usd) == (0, 0)
        assert count.metrics == {}
        assert scale.metrics == {"value@1": 10.0}

    @pytest.mark.parametrize("made_by_another", [True, False])
    def test_cached(self, request_: Request, made_by_another: bool) -> None:
        launched = self._launched(request_, reused=True) if made_by_another else None
        count = self._records(request_, launched)[0]
        waited = 20 if made_by_another else 0  # for which its resources were held
        assert (count.state, count.runtime_s, count.cpu_s, count.rows_per_s) == ("cached", waited, 0, 0)
        assert count.cost_usd == pytest.approx(0.756 * waited / 3600)
        dataset = request_.store.find("count", count.digest)
        assert dataset is not None
        took = dataset.manifest.measured.runtime_s
        assert count.saved_s == took
        assert count.saved_usd == pytest.approx(0.756 * took / 3600)

    def test_totals_of_a_run(self, request_: Request) -> None:
        count, scale = self._records(request_, self._launched(request_, reused=False))
        run = RunRecord("r", "f", "store", "name", "toy", [count, scale], {"embeddings": "uri"})
        run.close(request_.prices, 50.0)
        totals = run.totals()
        # 4 × 0.36 + 2^-20 × 0.036 for scale
        assert run.cost_usd == pytest.approx((0.756 + 1.44) * 20 / 3600, rel=1e-6)
        # the larger of each: 4 vCPU and 1 GiB, for 40 s
        assert run.unified_usd == pytest.approx((1.44 + 0.036) * 40 / 3600)
        assert (totals["seconds"], totals["wall_seconds"], totals["stages_ran"], totals["stages_cached"]) == (
            40.0, 50.0, 2, 0,
        )  # fmt: skip
        assert totals["cpu_seconds"] == pytest.approx(count.cpu_s + scale.cpu_s)
        assert totals["peak_memory_bytes"] == max(count.peak_memory_bytes, scale.peak_memory_bytes)
        document = run.document()
        assert document["metrics"] == {"scale.value@1": 10.0}
        assert document["embeddings"] == "uri"
        assert {"run_id", "flow_run_id", "store", "stages", "metrics", "embeddings"} <= document.keys()
        stage = {"name", "state", "runtime_s", "cpu_s", "peak_memory_bytes", "cost_usd", "rows", "output"}
        assert stage <= document["stages"][0].keys()

    def test_cached_stages_are_not_in_the_unified_cost(self, request_: Request) -> None:
        run = RunRecord("r", "f", "store", "name", "toy", self._records(request_, None))
        run.close(request_.prices, 1.0)
        assert (run.cost_usd, run.unified_usd) == (0, 0)
        assert run.saved_usd > 0
        assert run.totals()["stages_cached"] == 2
