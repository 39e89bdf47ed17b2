"""Pages of the dashboard as single files, which open without a server or a network."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jinja2 import Environment, FileSystemLoader, Template
from markupsafe import Markup

from superworkflow.dashboards.web.content import FILTERS, STATIC, TEMPLATES, run_content
from superworkflow.dashboards.web.panels import drawn
from superworkflow.dashboards.web.plotly_js import packed_plotly_js
from superworkflow.infra.tracking.run_details import DetailedRun, RecordedStageRun

if TYPE_CHECKING:
    from optuna.study import Study

RUN_REPORT, SWEEP_REPORT = "report.html", "sweep.html"
"""Names of the files."""


def write_run_report(
    run: DetailedRun, stages: Sequence[RecordedStageRun], path: Path, prefect: str = "",
    panels: Sequence[Mapping[str, Any]] = (),
) -> None:  # fmt: skip
    """The page of a run; see `run_content`.

    Args:
        run: the run.
        stages: its stages.
        path: of the file.
        prefect: address of its page in Prefect; empty if there is none.
        panels: documents of its panels.
    """
    content = run_content(run, stages, prefect)
    _write(path, run.name, "run_content.html", content | {"panels": [drawn(each) for each in panels]})


def write_sweep_report(study: Study, report: Mapping[str, Any], path: Path) -> None:
    """The page of a sweep; see `sweep_figures`."""
    from superworkflow.dashboards.web.sweep_figures import sweep_figures

    content = {"report": report, "figures": sweep_figures(study, report)}
    _write(path, str(report["study"]), "sweep_content.html", content)


def _write(path: Path, title: str, content: str, values: Mapping[str, Any]) -> None:
    text = _page().render(title=title, content=content, linked=False, plotly=packed_plotly_js(), **values)
    path.write_text(text, encoding="utf-8")


@functools.cache
def _page() -> Template:
    """The page around a content; compiling it takes as long as all else of a run whose stages are cached."""
    pages = Environment(loader=FileSystemLoader(TEMPLATES), autoescape=True, trim_blocks=True, lstrip_blocks=True)
    pages.filters.update(FILTERS)
    own = {name: Markup((STATIC / file).read_text()) for name, file in (
        ("style", "style.css"), ("unpack", "unpack.js"), ("page", "page.js"), ("points", "points.js"),
        ("panels_js", "panels.js"))}  # fmt: skip
    return pages.get_template("report.html", globals=own)
