"""Names that the command line offers, without the libraries behind them."""

SAMPLERS = ("tpe", "gp", "nsga2", "random", "grid")
PRUNERS = ("median", "hyperband", "none")
