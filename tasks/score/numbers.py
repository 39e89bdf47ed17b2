"""Figures of predicted numbers."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from superworkflow.infra.base.errors import UserError
from superworkflow.infra.contract.stage import Output, StageParams, StageRun
from superworkflow.infra.storage.dataset import Dataset
from superworkflow.tasks.lib.baseline_warnings import number_warnings
from superworkflow.tasks.lib.edge_list.input_warnings import log_warnings, warning_stats
from superworkflow.tasks.lib.formats.arrow import column
from superworkflow.tasks.lib.metrics.figures import number_errors

JUDGED = ("validation", "test")
_SHOWN = 100


def keys_of(names: Sequence[str]) -> list[str]:
    """Columns of predictions that say what each is of: a node, or the ends of an edge."""
    return ["node"] if "node" in names else ["source", "target"]


def judge_numbers(job: StageRun[StageParams], table: pa.Table) -> Output:
    """Judge predicted numbers; see `tasks.score`.

    Args:
        job: the stage's argument.
        table: nodes with their number `label`, which may be null, `predicted` and `split`.

    Raises:
        UserError: no node is to be validated on or tested.
    """
    table, metrics, worst = table.filter(table["label"].is_valid()), dict[str, float](), []
    rows = 0
    for split in JUDGED:
        part = table.filter(pc.equal(table["split"], split))
        if not len(part):
            continue
        rows += len(part)
        truth, found = (part[name].to_numpy() for name in ("label", "predicted"))
        metrics |= {f"{name}@{split}": value for name, value in number_errors(truth, found).items()}
        largest = np.argsort(-np.abs(found - truth), kind="stable")[:_SHOWN]
        worst.append(part.select(["split", *keys_of(part.column_names), "label", "predicted"]).take(column(largest)))
    if not metrics:
        raise nothing_to_judge(job.inputs["predictions"].uri)
    job.output.json("metrics.json", metrics)
    job.output.table("errors.parquet", pa.concat_tables(worst))
    simple = job.inputs["baselines"].json("metrics.json") if "baselines" in job.inputs else {}
    warnings = number_warnings(metrics, simple, trained_by(job.inputs["predictions"]))
    log_warnings(job.progress, warnings)
    return Output(rows=rows, metrics=metrics, stats=warning_stats(warnings))


def trained_by(predictions: Dataset) -> str:
    """Stage that trained the network of predictions."""
    network = predictions.manifest.inputs.get("network")
    return network.stage if network is not None and network.stage else "train"


def nothing_to_judge(where: str) -> UserError:
    """Error of predictions without a labelled node to validate on or to test."""
    return UserError("no node is left to judge the predictions by", where=where,
                     remedy="Put labelled nodes into the splits validation and test")  # fmt: skip
