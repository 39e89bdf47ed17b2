"""Metrics and the classifiers behind them."""

NUMBER_FIGURES = ("rmse", "mae", "r2")
"""Figures of predicted numbers; see `number_errors`."""
