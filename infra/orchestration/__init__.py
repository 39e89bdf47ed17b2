"""How a superworkflow runs: nodes of its diagram as tasks of a Prefect flow."""
