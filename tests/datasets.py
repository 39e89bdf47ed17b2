"""Datasets of tests that no stage has made."""

from collections.abc import Mapping
from typing import Any

from superworkflow.infra.storage.dataset import Dataset, DatasetWriter
from superworkflow.infra.storage.manifest import Measurement, Stat


def commit(
    writer: DatasetWriter, stage: str, params: Mapping[str, Any] = {}, stats: Mapping[str, Stat] = {}, rows: int = 0
) -> Dataset:
    """Complete a dataset of version 1 of a stage, without inputs; its digest is of the stage and these parameters."""
    measured = Measurement(runtime_s=0, cpu_s=0, peak_memory_bytes=0, rows=rows, bytes=writer.bytes_written)
    return writer.commit(
        stage=stage, version="1", params=params, inputs={}, stats=stats, measured=measured, software={}
    )
