"""The dashboard on records of real runs: frames are what the records say; pages, in a real browser, say the same.

One file, so that processes that run tests in parallel make these records once.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import pyarrow as pa
import pytest
from mlflow import MlflowClient

from superworkflow.dashboards.web import frames
from superworkflow.dashboards.web.figures import REST
from superworkflow.dashboards.web.report import write_run_report
from superworkflow.dashboards.web.stages import fits, profile_lines, shipped_prices, timeline
from superworkflow.infra.config.profile import load_profile
from superworkflow.infra.contract.metrics import Metric, metrics_text, read_metrics
from superworkflow.infra.contract.panel import Panel, panel_document
from superworkflow.infra.contract.resources import format_bytes, format_seconds, format_usd
from superworkflow.infra.tracking.run_details import RecordedStageRun
from superworkflow.tasks.score.panels import _confusion
from tests.dashboards.conftest import GATE, STUDY, Recorded
from tests.flows.deployments import eventually

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

SHOTS = os.environ.get("SUPERWORKFLOW_TEST_SCREENSHOTS")
"""Folder to leave pictures of all pages in."""
LEAST_CONTRAST = 4.5
"""WCAG 2, level AA."""
NARROW = "(each) => each.clientWidth <= 390"
CONTRASTS = Path(__file__).with_name("contrast.js").read_text()


def _paths(recorded: Recorded) -> dict[str, str]:
    both = "&".join(f"run={run.run_id}" for run in reversed(recorded.nightly))
    return {
        "overview": "/", "deployments": "/deployments", "run": f"/run/{recorded.nightly[-1].run_id}",
        "runs": "/compare", "compare": f"/compare?{both}", "sweeps": f"/sweeps?study={STUDY}", "models": "/models",
        "data": f"/data/{next(iter(recorded.nightly[-1].sources.values()))}",
        "found": "/compare?text=nothing&outcome=failed",
    }  # fmt: skip


PAGES = ("overview", "deployments", "run", "runs", "compare", "sweeps", "models", "data", "found")
Open = Callable[[str], "Page"]


@pytest.fixture(scope="module")
def said() -> list[str]:
    """Errors in the console of the page that is open."""
    return []


@pytest.fixture(scope="module")
def page(browser: Browser, said: list[str]) -> Iterator[Page]:
    """A tab."""
    with browser.new_page() as page:
        page.set_default_timeout(120_000)  # the first page of sweeps imports Optuna, on a busy machine for a minute
        _listen(page, said)
        yield page


def _listen(page: Page, said: list[str]) -> None:
    page.on("console", lambda message: said.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: said.append(str(error)))
    page.on("requestfailed", lambda request: said.append(f"{request.url}: {request.failure}"))


@pytest.fixture
def show(page: Page, said: list[str], served: str, recorded: Recorded) -> Open:
    """Opens a page by its name and waits until its figures are drawn."""

    def show(name: str) -> Page:
        page.emulate_media(color_scheme="light")
        page.set_viewport_size({"width": 1280, "height": 900})
        said.clear()
        page.goto(served + _paths(recorded)[name])
        _drawn(page, "light")
        return page

    return show


def _drawn(page: Page, scheme: str) -> None:
    page.locator(f"html[data-ready={scheme}]").wait_for(state="attached", timeout=60_000)


def _shot(page: Page, name: str) -> None:
    if SHOTS:
        page.screenshot(path=f"{SHOTS}/{name}.png", full_page=True)


@pytest.mark.parametrize("name", PAGES)
def test_page_opens_fits_and_can_be_read(show: Open, said: list[str], name: str) -> None:
    """At 1280 and 390 pixels, by day and by night, without an error in the console."""
    page = show(name)
    figures = page.locator(".plot").count()
    assert page.locator(".plot .main-svg").first.is_visible() if figures else name in ("runs", "data", "found")
    assert _overflow(page) == []
    if name == "models":  # figures of drift, at the end of a row, are not hidden
        assert (
            page.locator(".scroll").evaluate_all("all => all.filter((each) => each.scrollWidth > each.clientWidth)")
            == []
        )
    assert _faint(page) == []
    _shot(page, f"{name}-desktop")
    page.emulate_media(color_scheme="dark")
    if figures:
        _drawn(page, "dark")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(16, 20, 27)"
    assert _faint(page) == []
    _shot(page, f"{name}-dark")
    page.emulate_media(color_scheme="light")
    page.set_viewport_size({"width": 390, "height": 844})
    eventually(lambda: page.evaluate(f"[...document.querySelectorAll('.plot .main-svg')].every({NARROW})"))
    assert _overflow(page) == []
    _shot(page, f"{name}-phone")
    assert said == []


def _overflow(page: Page) -> list[str]:
    """Elements that are wider than the window and lie in nothing that scrolls."""
    found: list[str] = page.evaluate(
        """() => document.documentElement.scrollWidth <= innerWidth ? [] :
        [...document.querySelectorAll("body *")].filter((each) => each.getBoundingClientRect().right > innerWidth + 1
          && !each.closest(".scroll, pre, svg")).map((each) => each.outerHTML.slice(0, 120))
          .concat(`page: ${document.documentElement.scrollWidth} of ${innerWidth}`)"""
    )
    return found


def _faint(page: Page) -> list[str]:
    found: list[Any] = page.evaluate(CONTRASTS)
    return [f"{text!r}: {ratio:.1f}" for text, ratio in found if ratio < LEAST_CONTRAST]


def _value(page: Page, name: str) -> str:
    return page.locator(f"[data-value={name}]").inner_text()


def test_overview_says_what_the_records_say(show: Open, recorded: Recorded) -> None:
    page = show("overview")
    runs = recorded.runs
    assert _value(page, "cost") == format_usd(sum(run.figures["cost/total_usd"] for run in runs))
    assert _value(page, "saved") == format_usd(sum(run.figures["cost/saved_by_cache_usd"] for run in runs))
    assert _value(page, "success") == "100%"
    month = frames.month(frames.runs_frame(runs), frames.today())
    assert _value(page, "forecast") == format_usd(month.forecast_usd)
    assert "budget of $5.00" in page.inner_text("main")
    drawn = page.evaluate("document.querySelector('[data-figure=stage]').data.map((each) => [each.name, each.y])")
    by_stage = frames.costs_frame(runs).groupby("stage")["cost_usd"].sum().sort_values(ascending=False)
    wanted = {**dict(by_stage.iloc[:7]), REST: by_stage.iloc[7:].sum()}  # those that cost least share a colour
    assert {name: sum(values) for name, values in drawn} == pytest.approx(wanted)


def test_run_says_what_the_records_say(show: Open, recorded: Recorded) -> None:
    page, run = show("run"), recorded.nightly[-1]
    assert _value(page, "cost") == format_usd(run.figures["cost/total_usd"])
    assert _value(page, "wall") == format_seconds(run.figures["runtime/wall_s"])
    first = frames.headline(run)
    assert first is not None
    assert _value(page, "quality") == f"{first.value:.4f}"
    for stage in recorded.stages(run):
        row = page.locator(f"#stages [data-stage={stage.name}]").inner_text().split("\t")
        if stage.state == "ran":
            expected = [stage.seconds, stage.cpu_s]
            assert row[4:9] == [*map(format_seconds, expected), format_bytes(stage.memory_bytes), f"{stage.rows:,.0f}",
                                format_usd(stage.cost_usd)]  # fmt: skip
    assert run.tags["superworkflow.decision"] in page.inner_text("main")
    assert page.locator("#profile").inner_text().startswith("stages:\n")
    rows = page.evaluate("document.querySelector('[data-figure=gantt]').data.flatMap((each) => each.y)")
    assert set(rows) == set(run.stages)


def test_deployments_say_what_the_records_say(show: Open, recorded: Recorded) -> None:
    page = show("deployments")
    text = page.inner_text("main")
    assert "pagerank/ranks" in text
    assert page.locator("[data-figure^=quality-]").count() == 1, "one has no figure of quality"
    assert "0 2 * * * (UTC)" in text
    assert re.search(r"next run\s+\d{4}-\d\d-\d\d 02:00", text)
    last = recorded.nightly[-1]
    assert f"{last.figures['promotion/quality']:.4f}" in text
    assert f"{last.figures['promotion/champion_quality']:.4f}" in text
    assert "✓ evaluate.macro_f1>=0.2" in text


def test_compare_and_sweeps_say_what_the_records_say(show: Open, recorded: Recorded) -> None:
    page = show("compare")
    differing = {row.split("\t")[0] for row in page.locator("#differing tbody tr").all_inner_texts()}
    assert differing == {"embed.window", "source edges"}
    costs = page.locator("#figures tr", has_text="cost").first.inner_text().split("\t")[1:]
    assert costs == [format_usd(run.figures["cost/total_usd"]) for run in reversed(recorded.nightly)]
    page = show("sweeps")
    assert _value(page, "trials") == "4 of 4"
    titles = page.locator("h2").all_inner_texts()
    assert {"History", "Importance", "Pareto front", "Parallel coordinates", "Heat map", "Cost"} <= set(titles)
    drawn = page.evaluate("document.querySelector('[data-figure=sweep-1]').data[0].y")
    rows = [row.split("\t") for row in page.locator("#trials tbody tr").all_inner_texts()]
    assert [f"{value:.4g}" for value in drawn] == [row[2] for row in reversed(rows)]


def test_runs_are_chosen_by_ticking_them(show: Open) -> None:
    page = show("runs")
    for place in (0, 1):
        page.locator("input[type=checkbox]").nth(place).check()
    page.get_by_role("button", name="Compare").click()
    _drawn(page, "light")
    assert page.inner_text("h1") == "Compare 2 runs"


def test_report_of_a_run_is_one_file(browser: Browser, recorded: Recorded, tmp_path: Path) -> None:
    run = recorded.nightly[-1]
    client = MlflowClient(recorded.reader.uri)
    path = Path(client.download_artifacts(run.run_id, "report.html", str(tmp_path)))
    assert path.stat().st_size < 2_500_000
    with browser.new_page(viewport={"width": 390, "height": 844}) as page:
        said: list[str] = []
        requested: list[str] = []
        _listen(page, said)
        page.on("request", lambda request: requested.append(request.url))
        page.goto(path.as_uri())
        _drawn(page, "light")
        assert said == []
        assert requested == [path.as_uri()]
        assert _overflow(page) == []
        assert _value(page, "cost") == format_usd(run.figures["cost/total_usd"])
        assert page.locator("[data-figure=gantt] .main-svg").first.is_visible()
        _shot(page, "report-phone")


def test_cells_of_a_confusion_matrix_are_numbers_of_nodes(browser: Browser, recorded: Recorded, tmp_path: Path) -> None:
    run, path = recorded.nightly[-1], tmp_path / "report.html"
    rows = pa.table({"label": ["a", "a", "b"], "predicted": ["a", "b", "b"], "nodes": [31, 4, 27]})
    document = panel_document(Panel("score", "m:f", "classes", title="Predictions"), _confusion(rows, "test"))
    write_run_report(run, recorded.stages(run), path, panels=[document])
    with browser.new_page() as page:
        page.goto(path.as_uri())
        _drawn(page, "light")
        page.locator(".heatmap-label").first.wait_for()
        assert sorted(page.locator(".heatmap-label").all_text_contents()) == ["0", "27", "31", "4"]


def test_nothing_is_changed_and_strangers_are_refused(served: str, recorded: Recorded) -> None:
    def state() -> dict[str, str]:
        files = [path for path in recorded.store.rglob("*") if path.is_file() and "lock" not in path.name]
        return {str(path): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}

    before = state()
    for path in [*_paths(recorded).values(), "/?days=7&superworkflow=%3Cscript%3E", "/compare?run=x&run=y"]:
        answer = httpx.get(served + path, timeout=60)
        assert answer.status_code == 200
        assert "<script>" not in answer.text.partition("<main>")[2].replace('<script type="application/json"', "")
        assert re.findall(r"(?:src|href)=\"(https?:)?//", answer.text.partition("<main>")[0]) == []
    assert state() == before
    for path in ("/run/" + "0" * 32, "/run/%27%20or%201", "/sweeps?study=nobody", "/nowhere"):
        assert httpx.get(served + path, timeout=60).status_code == 404
    assert httpx.post(served, timeout=60).status_code == 405
    assert httpx.get(served, headers={"Host": "evil.example"}, timeout=60).status_code == 403


def test_costs_add_up_to_what_mlflow_has(recorded: Recorded) -> None:
    client = MlflowClient(recorded.reader.uri)
    (experiment,) = client.search_experiments(filter_string="name = 'superworkflow'")
    found = client.search_runs([experiment.experiment_id], "tags.`superworkflow.name` != ''")
    paid = sum(run.data.metrics["cost/total_usd"] for run in found)
    saved = sum(run.data.metrics["cost/saved_by_cache_usd"] for run in found)
    runs, costs = frames.runs_frame(recorded.runs), frames.costs_frame(recorded.runs)
    assert len(runs) == len(found) == 3
    assert paid > 0
    assert costs["cost_usd"].sum() == pytest.approx(paid)
    together = frames.summary(runs)
    assert (together.cost_usd, together.saved_usd) == (pytest.approx(paid), pytest.approx(saved))
    assert (together.ended_well, together.failed, together.success) == (3, 0, 1.0)
    today = recorded.runs[0].started.date()
    for key in ("superworkflow", "stage"):
        table = frames.by_day(costs, key, 30, today)
        assert len(table) == 30
        assert table.to_numpy().sum() == pytest.approx(paid)
        assert set(table.columns) == set(costs[key])
    assert frames.since(recorded.runs, 1, today + timedelta(days=40)) == []


def test_a_month_ends_at_its_mean(recorded: Recorded) -> None:
    runs = frames.runs_frame(recorded.runs)
    first = min(runs["day"])
    month = frames.month(runs, first + timedelta(days=1)) if first.day < 28 else frames.month(runs, first)
    days = 2 if first.day < 28 else 1
    assert month.daily_usd == pytest.approx(month.spent_usd / days)
    left = (month.last - month.days[-1][0]).days
    assert month.forecast_usd == pytest.approx(month.spent_usd * (1 + left / days))


def test_nothing_recorded_is_no_error() -> None:
    today = frames.today()
    assert frames.summary(frames.runs_frame([])).success is None
    assert frames.by_day(frames.costs_frame([]), "stage", 7, today).shape == (7, 0)
    assert frames.month(frames.runs_frame([]), today).forecast_usd == 0


def test_a_night_without_a_comparison_shows_what_it_would_be_compared_by(recorded: Recorded) -> None:
    """Such as one whose model is the champion already: a figure of another split would be an outlier of the chart."""
    declared = (Metric("score", "accuracy@validation", headline=True),
                Metric("score", "accuracy@test", headline=True, promotes=True))  # fmt: skip
    own = {"score.accuracy@validation": 0.9, "score.accuracy@test": 0.8}
    figures = {name: value for name, value in recorded.nightly[0].figures.items() if "promotion/" not in name}
    night = replace(recorded.nightly[0], metrics=own, declared=read_metrics(metrics_text(declared)), figures=figures)
    (history,) = frames.deployments([night], [])
    assert (history.metric, history.runs[0].quality) == ("score.accuracy@test", 0.8)


def test_a_deployment_by_its_nights(recorded: Recorded) -> None:
    history, other = frames.deployments(recorded.runs, recorded.reader.versions())
    assert (other.name, other.metric) == ("pagerank/ranks", "")
    assert (history.id, history.name) == (recorded.deployment, "node2vec/nightly")
    first, second = history.runs
    assert first.run.run_id == recorded.nightly[0].run_id
    assert first.champion is None
    assert second.champion == second.run.figures["promotion/champion_quality"]
    assert second.quality == second.run.figures["promotion/quality"]
    assert first.gates == second.gates == ((GATE, True),)
    assert [str(gate) for gate in history.limits] == [GATE]
    assert "edges_added_share" in history.drift
    assert "edges_added" not in history.drift


def test_runs_side_by_side(recorded: Recorded) -> None:
    first, second = recorded.nightly
    table = frames.differing([first, second])
    assert list(table.index) == ["embed.window", "source edges"]
    assert [table.at["embed.window", run.run_id] for run in (first, second)] == ["4", "6"]
    assert frames.differing([first, first]).empty
    figures = frames.qualities([first])
    heads = figures[figures["headline"]]
    assert heads["value"].iloc[0] == first.metrics[heads["metric"].iloc[0]]
    assert heads["spread"].iloc[0] == first.metrics[heads["metric"].iloc[0].replace("_f1", "_f1_std")]


def test_phases_of_stages(recorded: Recorded) -> None:
    run = recorded.nightly[0]
    phases = {each.stage.name: each for each in timeline(recorded.stages(run), run.started)}
    assert set(phases) == set(run.stages)
    wall = run.totals["wall_seconds"]
    for each in phases.values():
        assert 0 <= each.ready <= each.began <= each.ended <= wall + 1
        assert each.running_s == pytest.approx(each.stage.seconds + each.stage.compile_s, abs=0.01)
    for before, after in (("index", "walk"), ("walk", "prepare"), ("prepare", "embed"), ("embed", "evaluate")):
        assert phases[after].ready >= phases[before].ended - 0.01


def _stage(name: str, **given: float) -> RecordedStageRun:
    values = {"seconds": 3600.0, "cpu_s": 3600.0, "memory_bytes": 1 << 30, "cpu": 4.0, "memory": 8 << 30, **given}
    return RecordedStageRun(name=name, state="ran", ended=datetime.now(UTC), compile_s=0, rows=1, cost_usd=0.1,
                            saved_usd=0, **values)  # type: ignore[arg-type]  # fmt: skip


def test_lines_that_fit_better_are_a_profile(tmp_path: Path) -> None:
    prices = shipped_prices("../../etc/passwd")
    assert prices is not None
    found = fits(
        [_stage("wide"), _stage("tight", memory_bytes=int(7.9 * (1 << 30)), cpu_s=4 * 3600),
         _stage("right", cpu_s=3.5 * 3600, memory_bytes=int(6.9 * (1 << 30)))], prices,
    )  # fmt: skip
    wide, tight, right = found
    assert (wide.cpu, wide.memory) == (1.5, 1280 << 20)
    assert wide.saves_usd == pytest.approx(2.5 * prices.vcpu_hour + 6.75 * prices.gib_hour)
    assert tight.cpu is None
    assert tight.memory is not None
    assert tight.memory > 9 << 30
    assert tight.saves_usd is not None
    assert tight.saves_usd < 0
    assert not right.better
    path = tmp_path / "mine.yaml"
    path.write_text(profile_lines(found))
    placement = load_profile(str(path)).placement("wide", "wide")
    assert (placement.resources.cpu, placement.resources.memory) == (1.5, 1280 << 20)
