"""Metrics and the classifiers behind them."""

LABEL_FIGURES = ("accuracy", "micro_f1", "macro_f1")
"""Figures of predicted classes; see `figures`."""
NUMBER_FIGURES = ("rmse", "mae", "r2")
"""Figures of predicted numbers; see `figures`."""
