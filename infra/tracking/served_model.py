"""A registered model as MLflow runs it: it answers with the code that its superworkflow has declared.

MLflow runs this file as it is ("models from code"), from inside the logged model, where this project is not installed:
it needs MLflow and pandas, the declared code what its card says, and no pickle.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import mlflow
import numpy as np
import pandas as pd
from mlflow.exceptions import MlflowException
from mlflow.pyfunc.model import PythonModel, PythonModelContext


class ServedModel(PythonModel):
    """Answers requests from one dataset."""

    def load_context(self, context: PythonModelContext) -> None:
        """Open the dataset that was logged with the model."""
        code = _load(Path(context.artifacts["code"]))
        self.model = code.load(Path(context.artifacts["dataset"]))
        self.columns = list((context.model_config or {}).get("columns", ()))

    def predict(
        self, context: PythonModelContext, model_input: pd.DataFrame, params: dict[str, Any] | None = None
    ) -> pd.DataFrame:
        """Answer a table of requests, or values of its first columns; see `as_table`.

        MLflow reads the annotations, and warns of any but a table's.

        Raises:
            MlflowException: the declared code refuses it.
        """
        try:
            return self.model.predict(as_table(model_input, self.columns), params or {})
        except ValueError as error:
            raise MlflowException.invalid_parameter_value(str(error)) from error


def as_table(given: Any, columns: Sequence[str]) -> pd.DataFrame:
    """A request as a table: a DataFrame, a mapping or a list of records as they are; otherwise rows without names.

    Args:
        given: a value, a list, array or Series of values of the first column, or rows of values of the first columns.
        columns: names of the columns of a request, in order.

    Raises:
        ValueError: rows are of different lengths, or longer than there are columns.
    """
    if isinstance(given, pd.DataFrame):
        return given
    if isinstance(given, dict):
        return pd.DataFrame(given if given and all(np.ndim(value) for value in given.values()) else [given])
    if isinstance(given, pd.Series):
        return given.to_frame(given.name if given.name in columns else columns[0])
    rows = [given] if np.isscalar(given) else list(given)
    if rows and isinstance(rows[0], dict):
        return pd.DataFrame(rows)
    if not any(isinstance(row, (list, tuple, np.ndarray)) for row in rows):
        return pd.DataFrame({columns[0]: pd.Series(rows, dtype=object)})
    widths = {len(row) if isinstance(row, (list, tuple, np.ndarray)) else 1 for row in rows}
    if len(widths) > 1 or max(widths) > len(columns):
        raise ValueError(f"rows of {', '.join(map(str, sorted(widths)))} values: give {' and '.join(columns)} in each")
    return pd.DataFrame(rows, columns=list(columns[: max(widths)]), dtype=object)


def _load(path: Path) -> ModuleType:
    """The module in a file, or the package in a folder; under a name of its own, since other models may be open."""
    name = f"superworkflow_served_{abs(hash(str(path))):x}"
    inside = [str(path)] if path.is_dir() else None
    file = path / "__init__.py" if inside else path
    spec = importlib.util.spec_from_file_location(name, file, submodule_search_locations=inside)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


mlflow.models.set_model(ServedModel())
