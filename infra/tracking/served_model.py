"""A registered model as MLflow runs it: it answers with the code that its superworkflow has declared.

MLflow runs this file as it is ("models from code"), from inside the logged model, where this project is not installed:
it needs MLflow and pandas, the declared code what its card says, and no pickle.
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import mlflow
import pandas as pd
from mlflow.exceptions import MlflowException
from mlflow.pyfunc.model import PythonModel, PythonModelContext


class ServedModel(PythonModel):
    """Answers requests from one dataset."""

    def load_context(self, context: PythonModelContext) -> None:
        """Open the dataset that was logged with the model."""
        code = _load(Path(context.artifacts["code"]))
        self.model = code.load(Path(context.artifacts["dataset"]))

    def predict(
        self, context: PythonModelContext, model_input: pd.DataFrame, params: dict[str, Any] | None = None
    ) -> pd.DataFrame:
        """Answer a table of requests.

        Raises:
            MlflowException: the declared code refuses it.
        """
        try:
            return self.model.predict(model_input, params or {})
        except ValueError as error:
            raise MlflowException.invalid_parameter_value(str(error)) from error


def _load(path: Path) -> ModuleType:
    """The module in a file; under a name of its own, since models of other datasets may be open."""
    name = f"superworkflow_served_{abs(hash(str(path))):x}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


mlflow.models.set_model(ServedModel())
