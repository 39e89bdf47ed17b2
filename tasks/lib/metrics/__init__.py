"""Metrics and the classifiers behind them."""
