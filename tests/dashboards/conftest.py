"""Fixtures of pages and reports: a deployment of two nights, a sweep, and the dashboard that shows them."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from superworkflow.infra.tracking.run_details import DetailedRun, RecordedStageRun
from superworkflow.infra.tracking.run_reader import RunReader
from tests.flows.command_line import CommandLine
from tests.flows.nightly import nights

if TYPE_CHECKING:
    from playwright.sync_api import Browser


GATE = "evaluate.macro_f1>=0.2"
STUDY = "grid"
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


@dataclass(frozen=True)
class Recorded:
    """A store with what was recorded in it, and the Prefect server of its deployment."""

    store: Path
    api: str
    deployment: str

    @property
    def reader(self) -> RunReader:
        return RunReader(f"sqlite:///{self.store}/mlflow/mlflow.db")

    @property
    def runs(self) -> list[DetailedRun]:
        """Newest first."""
        return self.reader.runs(100)

    @property
    def nightly(self) -> list[DetailedRun]:
        """Runs of the deployment, oldest first."""
        return [run for run in reversed(self.runs) if run.deployment_id == self.deployment]

    def stages(self, run: DetailedRun) -> list[RecordedStageRun]:
        return self.reader.stages(run)


@pytest.fixture(scope="session")
def recorded(tmp_path_factory: pytest.TempPathFactory, graph_files: tuple[Path, Path], prefect_api: str) -> Recorded:
    """Two nights of a deployment, with more rows and another parameter in the second; a night without a figure of
    quality; a sweep of four trials."""
    folder = tmp_path_factory.mktemp("recorded")
    graph, labels = graph_files
    edges = folder / "edges.csv"
    rows = graph.read_text().splitlines(keepends=True)
    command = CommandLine(folder / "store", edges, labels, {"PREFECT_API_URL": prefect_api, "MLFLOW_TRACKING_URI": ""})
    settings = (*command.settings, "node2vec.link_prediction=false")
    with nights(prefect_api, {"MLFLOW_TRACKING_URI": "", "PREFECT_HOME": str(folder / "home")}) as night:
        edges.write_text("".join(rows))
        night(night.deploy("pagerank", "--name", "ranks", "--edges", str(edges), "--store", str(command.store)))
        given = ("--edges", str(edges), "--labels", str(labels), "--store", str(command.store), "--gate", GATE)
        for kept, window in ((rows[:-5], 4), (rows, 6)):
            edges.write_text("".join(kept))
            deployment = night.deploy(
                "node2vec", "--name", "nightly", *given, "--cron", "0 2 * * *", "--set", *settings,
                f"embed.window={window}",
            )  # fmt: skip
            night(deployment)
    space = folder / "space.yaml"
    space.write_text("embed: {window: [2, 4], epochs: [1, 2]}\n")
    command.here(
        "sweep", "node2vec", "--edges", str(edges), "--labels", str(labels), "--set", "walk.num_walks=4",
        "evaluate.C=1", "walk.walk_length=20", "embed.dimensions=16", "--space", str(space), "--sampler", "grid",
        "--study", STUDY, "--objectives", "quality,cost", "--no-tracking",
    )  # fmt: skip
    return Recorded(command.store, prefect_api, deployment)


@pytest.fixture(scope="session")
def served(recorded: Recorded) -> Iterator[str]:
    """Address of a dashboard of its own process, as users start it."""
    process = subprocess.Popen(
        [sys.executable, "-m", "superworkflow", "dashboard", "--store", str(recorded.store), "--port", "0",
         "--budget-usd", "5"],
        env=os.environ | {"PREFECT_API_URL": recorded.api, "MLFLOW_TRACKING_URI": ""},
        stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        assert process.stdout is not None
        yield process.stdout.readline().strip()
    finally:
        process.send_signal(signal.SIGINT)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(20)
        process.kill()
        process.wait()


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """The Chromium that is installed; not for longer, since it keeps an event loop, and other modules run their own."""
    playwright = pytest.importorskip("playwright.sync_api", reason="pip install -r requirements-dev.txt")
    if CHROMIUM is None:
        pytest.skip("no Chromium: apt-get install --no-install-recommends chromium")
    with playwright.sync_playwright() as started:
        browser = started.chromium.launch(executable_path=CHROMIUM, args=["--enable-unsafe-swiftshader"])
        yield browser
        browser.close()
