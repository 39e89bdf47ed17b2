"""Serving code of the chosen regression; kept with the model, so it needs NumPy and pandas only."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd


class Regression:
    """Predicts from the columns of the table that it was fitted to."""

    def __init__(self, folder: Path):
        self.facts = json.loads((folder / "columns.json").read_text(encoding="utf-8"))
        self.weights = np.load(folder / "weights.npy")

    def predict(self, table: pd.DataFrame, options: Mapping[str, Any]) -> pd.DataFrame:
        """One number for each row; ValueError for a row without one of the columns."""
        missing = [name for name in self.facts["names"] if name not in table or table[name].isna().any()]
        if missing:
            raise ValueError(f"a request needs the columns {', '.join(missing)}")
        values = table[self.facts["names"]].to_numpy(dtype=np.float64)
        values = (values - self.facts["mean"]) / self.facts["spread"]
        powers = [values**power for power in range(1, self.facts["degree"] + 1)]
        found = np.hstack([np.ones((len(values), 1)), *powers]) @ self.weights
        return pd.DataFrame({"prediction": found.round(options.get("digits", 2))})


def load(folder: Path) -> Regression:
    """The model of a `choose` dataset."""
    return Regression(folder)
