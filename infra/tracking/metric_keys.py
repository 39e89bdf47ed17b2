"""Names of figures in MLflow, which sorts and folds metrics by what stands before the first slash.

| metric of a run | what |
| --- | --- |
| `quality/<node>.<metric>` | quality |
| `cost/<node>_usd`, `runtime/<node>_s`, `memory/<node>_bytes` | of each stage that ran |
| `cost/total_usd`, `runtime/total_s`, … | of the run, see `TOTALS` |
| `promotion/…` | by which its model was compared with the champion |
| `drift/<figure>` | how far data and model are from the champion's |
| `training/<node>.<figure>` | by step, such as a loss; of stages that report steps |

A stage that was cached has none of them: a zero would count in means and charts. It is named in the tag `CACHED_TAG`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from superworkflow.infra.tracking.tags import read_names

CACHED_TAG = "superworkflow.cached"
TOTALS: Mapping[str, str] = {
    "seconds": "runtime/total_s",
    "wall_seconds": "runtime/wall_s",
    "cpu_seconds": "runtime/cpu_s",
    "compile_seconds": "runtime/compile_s",
    "cost_usd": "cost/total_usd",
    "value": "cost/value",
    "saved_by_cache_usd": "cost/saved_by_cache_usd",
    "unified_cost_usd": "cost/unified_usd",
    "peak_memory_bytes": "memory/peak_bytes",
    "stages_ran": "stages/ran",
    "stages_cached": "stages/cached",
    "stages_failed": "stages/failed",
}
"""Metrics by the names of `RunRecord.totals`."""
_OF_STAGES = {"seconds": ("runtime/", "_s"), "cost_usd": ("cost/", "_usd"), "peak_memory_bytes": ("memory/", "_bytes")}
_QUALITY, _DRIFT = "quality/", "drift/"


def metric_key(name: str) -> str:
    """MLflow allows no @ in a metric's name: `f1@0.5` is kept as `f1_at_0.5`."""
    return name.replace("@", "_at_")


def metric_name(key: str) -> str:
    """The name behind a key that `metric_key` made."""
    return "@".join(key.rsplit("_at_", 1))


def quality_keys(metrics: Mapping[str, float]) -> dict[str, float]:
    """Quality as a run's metrics, by `node.metric` at first."""
    return {f"{_QUALITY}{name}": value for name, value in metrics.items()}


def course_key(node: str, figure: str) -> str:
    """Name of a figure that a node reported while it worked."""
    return f"training/{node}.{figure}"


def drift_keys(drift: Mapping[str, float]) -> dict[str, float]:
    """Figures of drift as a run's metrics."""
    return {f"{_DRIFT}{name}": value for name, value in drift.items()}


def stage_keys(node: str, took: Mapping[str, float]) -> dict[str, float]:
    """Usage of one stage as metrics of its run; a node whose name would collide with a total has none."""
    keys = {f"{begin}{node}{end}": took[name] for name, (begin, end) in _OF_STAGES.items()}
    return {key: value for key, value in keys.items() if key not in TOTALS.values()}


def total_keys(totals: Mapping[str, float]) -> dict[str, float]:
    """A run's totals as its metrics."""
    return {TOTALS[name]: value for name, value in totals.items()}


def read_cached(tags: Mapping[str, str]) -> list[str]:
    """Nodes that a run's tags name as cached."""
    return read_names(tags.get(CACHED_TAG, "")) or []


def read_keys(
    metrics: Mapping[str, float], cached: Iterable[str]
) -> tuple[dict[str, float], dict[str, dict[str, float]], dict[str, float]]:
    """Quality by `node.metric`, what each stage took, and the totals, from a run's metrics.

    Args:
        metrics: as MLflow has them.
        cached: nodes that were cached.
    """
    quality: dict[str, float] = {}
    stages: dict[str, dict[str, float]] = {node: dict.fromkeys([*_OF_STAGES], 0.0) | {"cached": 1.0} for node in cached}
    totals: dict[str, float] = {}
    of_totals = {key: name for name, key in TOTALS.items()}
    for key, value in metrics.items():
        if key in of_totals:
            totals[of_totals[key]] = value
        elif found := _stage_figure(key):
            stages.setdefault(found[0], {"cached": 0.0})[found[1]] = value
        elif key.startswith(_QUALITY):
            quality[metric_name(key.removeprefix(_QUALITY))] = value
    return quality, stages, totals


def _stage_figure(key: str) -> tuple[str, str] | None:
    """The node and the figure that a metric is of."""
    for figure, (begin, end) in _OF_STAGES.items():
        if key.startswith(begin) and key.endswith(end):
            return key[len(begin) : -len(end)], figure
    return None
