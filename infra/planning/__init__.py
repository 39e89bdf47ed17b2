"""Forecasts of time, memory and cost, calibrated on earlier runs."""
