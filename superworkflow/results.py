"""Results of runs as Python and notebooks show them: tables of pandas, arrays, pictures."""

from __future__ import annotations

import html
import importlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from functools import cached_property, partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from superworkflow.frames import by_name
from superworkflow.infra.base.errors import UserError
from superworkflow.infra.base.import_strings import imported
from superworkflow.infra.base.suggest import nearest
from superworkflow.infra.contract.superworkflow import Superworkflow
from superworkflow.infra.storage.dataset import Dataset
from superworkflow.infra.storage.table_files import matching
from superworkflow.infra.tracking.records import RunRecord

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa
    import torch

    from superworkflow.sweeps.summary import SweepReport, TrialRow

_STAGE_COLUMNS = ("state", "runtime_s", "cpu_s", "peak_memory_bytes", "cost_usd", "saved_usd", "rows", "output")


class Result:
    """One output of a run: a table in Parquet, or an array.

    Args:
        dataset: that of the stage.
        names: its files that make up the output, in order.
    """

    def __init__(self, dataset: Dataset, names: Sequence[str]):
        self._dataset, self.names = dataset, tuple(names)

    @property
    def uri(self) -> str:
        """URI of the dataset that holds it."""
        return self._dataset.uri

    def to_arrow(self) -> pa.Table:
        """The table.

        Raises:
            UserError: it is no table.
            DatasetDamaged: a file is missing or altered.
        """
        import pyarrow as pa

        if not all(name.endswith(".parquet") for name in self.names):
            raise UserError("is no table", where=self.uri, value=", ".join(self.names), remedy="Use to_numpy()")
        return pa.concat_tables(self._dataset.table(name) for name in self.names)

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """The table for others: a source of `sw.run`, or a frame of another library."""
        return self.to_arrow().__arrow_c_stream__(requested_schema)

    def export(self, address: str) -> int:
        """Write the table to `postgresql://…?table=NAME`, or a path or URI with the ending of a table's form.

        Args:
            address: see `superworkflow.infra.storage.warehouse.sinks`.

        Returns:
            The number of rows.

        Raises:
            UserError: it is no table, or cannot be written there.
        """
        from superworkflow.infra.storage.warehouse.sinks import write_table

        return write_table([self.to_arrow()], address)

    def to_pandas(self) -> pd.DataFrame:
        """The table as a frame of pandas."""
        return self.to_arrow().to_pandas()

    def to_polars(self) -> Any:
        """The table as a frame of polars, which has to be installed."""
        return importlib.import_module("polars").from_arrow(self.to_arrow())

    def to_numpy(self) -> NDArray[Any]:
        """The numbers, [rows, columns]: an array, or columns of numbers and of lists of numbers, side by side.

        Raises:
            UserError: there are none.
        """
        if all(name.endswith(".npy") for name in self.names):
            return np.concatenate([self._dataset.array(name) for name in self.names])
        found = [matrix for column in self.to_arrow().columns if (matrix := _matrix(column)) is not None]
        if not found:
            raise UserError("has no numbers", where=self.uri, remedy="Use to_pandas()")
        return np.concatenate(found, axis=1)

    def to_torch(self) -> torch.Tensor:
        """The numbers as a tensor of PyTorch, which has to be installed."""
        import torch

        return torch.from_numpy(np.array(self.to_numpy()))

    def __repr__(self) -> str:
        return f"<{', '.join(self.names)} of {self.uri}>"


class Run:
    """A finished run. Queries that its superworkflow declares are methods of it.

    Args:
        superworkflow: what ran.
        record: of the run.
        page: its page in MLflow, if it is recorded.
    """

    def __init__(self, superworkflow: Superworkflow, record: RunRecord, page: str | None):
        self.superworkflow, self.record, self.page = superworkflow, record, page

    @property
    def id(self) -> str:
        """ID of the run in MLflow; empty where it is not recorded."""
        return self.record.run_id

    @property
    def metrics(self) -> pd.Series[float]:
        """Quality by `stage.metric`."""
        return series(self.record.metrics, "value")

    @property
    def stages(self) -> pd.DataFrame:
        """State, runtime, memory, cost and output of each stage."""
        rows = {each.name: {name: getattr(each, name) for name in _STAGE_COLUMNS} for each in self.record.stages}
        return frame(rows.values(), index=rows.keys())

    @property
    def cost(self) -> pd.Series[float]:
        """Cost of each stage in USD; `run.cost.sum()` is that of the run."""
        return series({each.name: each.cost_usd for each in self.record.stages}, "cost_usd")

    @property
    def outputs(self) -> list[str]:
        """Names of what `run[name]` gives."""
        return [name for name in self.superworkflow.outputs if self.superworkflow.output(name, self._datasets)]

    def __getitem__(self, name: str) -> Result:
        """One output: `run["output"].to_pandas()`.

        Raises:
            UserError: the superworkflow has no such output, or this run has not made it.
        """
        found = self.superworkflow.output(name, self._datasets) if name in self.superworkflow.outputs else None
        if found is None:
            raise UserError("is no output of this run", where=self.superworkflow.name, value=name,
                            remedy=nearest(name, self.outputs))  # fmt: skip
        node, files = found
        dataset = self._datasets[node]
        return Result(dataset, matching(dataset.files(), files))

    def dataset(self, stage: str) -> Dataset:
        """The dataset of a stage, by the stage's name in the diagram.

        Raises:
            UserError: this run has no such stage.
        """
        if stage not in self._datasets:
            raise UserError("is no stage of this run", where=self.superworkflow.name, value=stage,
                            remedy=nearest(stage, list(self._datasets)))  # fmt: skip
        return self._datasets[stage]

    def figure(self, name: str) -> Any:
        """A picture that the superworkflow declares, shown by a notebook, saved by `.save(path)`.

        Raises:
            UserError: there is none of this name, or nothing to draw in this run.
        """
        from PIL import Image

        pictures = {each.name: each for each in self.superworkflow.pictures if each.node in self._datasets}
        if name not in pictures:
            raise UserError("is no picture of this run", where=self.superworkflow.name, value=name,
                            remedy=nearest(name, list(pictures)))  # fmt: skip
        with TemporaryDirectory(prefix="superworkflow-picture-") as folder:
            path = Path(folder) / "picture.png"
            imported(pictures[name].function)(self._datasets[pictures[name].node], path)
            if not path.exists():
                raise UserError("this run has nothing to draw", where=self.superworkflow.name, value=name)
            with Image.open(path) as image:
                return image.copy()

    def close(self) -> None:
        """Remove copies of what was read from a remote store."""
        for dataset in self._datasets.values():
            dataset.close()

    @cached_property
    def _datasets(self) -> dict[str, Dataset]:
        return {each.name: Dataset.open(each.output) for each in self.record.stages if each.state != "failed"}

    def __getattr__(self, name: str) -> Callable[..., Any]:
        """A query that the superworkflow declares, on the dataset of its node."""
        query = self.__dict__["superworkflow"].queries.get(name) if "superworkflow" in self.__dict__ else None
        if query is None or query.node not in self._datasets:
            raise AttributeError(f"this run has no attribute {name!r}")
        return partial(imported(query.function), self._datasets[query.node])

    def _repr_html_(self) -> str:
        name, record = html.escape(self.superworkflow.name), self.record
        head = f"<b>{name}</b> {html.escape(record.name)}, {record.cost_usd:.6f} USD"
        in_web = self.page and self.page.startswith("http")
        head += f', <a href="{html.escape(str(self.page))}">in MLflow</a>' if in_web else ""
        metrics = self.metrics.to_frame()._repr_html_() if len(self.metrics) else ""
        warnings = "".join(f"<p>{html.escape(each)}</p>" for each in self._warnings())
        return f"<p>{head}</p>{warnings}{metrics}{self.stages._repr_html_()}"

    def __repr__(self) -> str:
        metrics = [self.metrics.to_string()] if len(self.metrics) else []
        head = f"{self.superworkflow.name} {self.record.name}"
        return "\n".join([head, *self._warnings(), *metrics, self.stages.to_string()])

    def _warnings(self) -> list[str]:
        """Warnings of stages about their input."""
        uris = {source.name: source.uri for source in self.record.sources}
        return [f"{stage.name}: {by_name(each, uris)}" for stage in self.record.stages for each in stage.warnings]


class Study:
    """Result of a sweep.

    Args:
        report: of its study.
    """

    def __init__(self, report: SweepReport):
        self.report = report

    @property
    def study(self) -> str:
        """Name of the study."""
        return self.report.study

    @property
    def best(self) -> dict[str, Any]:
        """Parameters of the best trial, as `superworkflow.run` takes them; of several objectives see `front`.

        Raises:
            UserError: no trial is complete.
        """
        if not self.report.best:
            raise UserError("no trial is complete", where=self.study, remedy="Look at `trials`, column reason")
        return dict(self.report.best[0].params)

    @property
    def front(self) -> pd.DataFrame:
        """The best trial, or the Pareto front of several objectives."""
        return self._frame(self.report.best)

    @property
    def trials(self) -> pd.DataFrame:
        """All trials: state, objectives, cost, parameters, reason of an early end."""
        return self._frame(self.report.trials)

    def _frame(self, rows: Sequence[TrialRow]) -> pd.DataFrame:
        names = [each["name"] for each in self.report.objectives]
        return frame(
            [{"state": row.state, **dict(zip(names, row.values or (), strict=False)), "paid_usd": row.paid_usd,
              "reused_usd": row.reused_usd, **row.params, "reason": row.reason} for row in rows],
            index=[str(row.number) for row in rows],
        )  # fmt: skip

    def _repr_html_(self) -> str:
        report = self.report
        note = f", stopped early: {html.escape(report.note)}" if report.note else ""
        head = f"<b>{html.escape(report.study)}</b> {report.finished} of {report.target} trials{note}"
        money = f"{report.paid_usd:.6f} USD, {report.saved_usd:.6f} saved by reuse"
        return f"<p>{head}; {money}</p>{self.front._repr_html_()}"

    def __repr__(self) -> str:
        return f"{self.study}: {self.report.finished} of {self.report.target} trials\n{self.front.to_string()}"


def frame(rows: Iterable[Any], index: Iterable[str] | None = None) -> pd.DataFrame:
    """Rows, dataclasses or mappings, as a frame of pandas, which notebooks show with units."""
    from superworkflow.tables import UnitFrame

    found = [row if isinstance(row, Mapping) else asdict(row) for row in rows]
    return UnitFrame(found, index=None if index is None else list(index))


def series(values: Mapping[str, float], name: str) -> pd.Series[float]:
    """Numbers by name as a series of pandas."""
    import pandas

    return pandas.Series(values, name=name, dtype=float)


def _matrix(column: pa.ChunkedArray) -> NDArray[Any] | None:
    """Numbers of a column, [rows, width]; None for one that has none."""
    import pyarrow as pa

    kind = column.type
    if pa.types.is_list(kind) or pa.types.is_fixed_size_list(kind):
        if not _is_number(kind.value_type) or not len(column):
            return None
        return np.asarray(column.combine_chunks().flatten()).reshape(len(column), -1)
    return np.asarray(column).reshape(-1, 1) if _is_number(kind) else None


def _is_number(kind: pa.DataType) -> bool:
    import pyarrow as pa

    return bool(pa.types.is_floating(kind) or pa.types.is_integer(kind))
