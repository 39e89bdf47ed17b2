"""Spark as an engine of stages: its session here, and what executors use in their tasks."""
