"""Others' software as oracles: what it reads of our files, and what it samples itself. `make oracles` runs it.

Each has an environment of its own below `.oracles/`, from `requirements-<name>.txt`. Modules whose names begin with
`in_` run there and import nothing of the project.
"""
