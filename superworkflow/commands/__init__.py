"""One module for each command, with `add_arguments(parser, given)` and `run(options) -> exit status`."""
