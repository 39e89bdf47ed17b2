"""Extras of the distribution by the package that each installs, to say what to install where an import fails."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator, Mapping

from superworkflow.infra.base.errors import UserError

EXTRAS: Mapping[str, str] = {
    "duckdb": "cpu", "pandas": "cpu", "scipy": "cpu", "sklearn": "cpu",
    "cmeel": "cpu", "PIL": "cpu", "safetensors": "cpu",
    "torch": "torch",
    "aiobotocore": "s3", "botocore": "s3", "s3fs": "s3",
    "anyio": "flow", "httpx": "flow", "matplotlib": "flow", "mlflow": "flow", "prefect": "flow", "rich": "flow",
    "jinja2": "flow", "markupsafe": "flow", "plotly": "flow", "requests": "flow",
    "optuna": "sweep", "optuna_dashboard": "sweep", "sqlalchemy": "sweep",
    "flask": "dashboard", "werkzeug": "dashboard", "waitress": "dashboard",
    "psycopg": "postgres",
    "adbc_driver_postgresql": "tables", "adbc_driver_sqlite": "tables", "deltalake": "tables", "pyiceberg": "tables",
    "lancedb": "vectors", "faiss": "vectors",
    "aiohttp": "kubernetes", "cryptography": "kubernetes", "kubernetes_asyncio": "kubernetes",
    "prefect_kubernetes": "kubernetes",
    "py4j": "spark", "pyspark": "spark", "dask": "dask", "distributed": "dask", "zmq": "workers",
}  # fmt: skip
"""Extra by imported package. A package of several extras has the smallest one that suffices; engines' packages are
repeated from `Engine.packages`."""


def install_line(extra: str) -> str:
    """Command that installs an extra."""
    return f"pip install 'superworkflow[{extra}]'"


def needs_package(package: str, where: str | None = None) -> UserError:
    """The error that says which extra has a package."""
    return UserError(f"needs {package}, which is not installed", where=where,
                     remedy=f"Run `{install_line(EXTRAS[package])}`")  # fmt: skip


def require_extra(kind: str) -> None:
    """Check that the packages of a kind of image are here, for a stage that is to run in this environment.

    Those of `torch` are left to the stage, which has a kernel without it.

    Raises:
        UserError: names the first that is missing, and its extra.
    """
    for package, extra in EXTRAS.items():
        if extra == kind and kind != "torch" and importlib.util.find_spec(package) is None:
            raise needs_package(package)


def missing_package(error: BaseException) -> UserError | None:
    """Error that names the extra of a missing package; None for any other failure of an import.

    A package that is there, and breaks when it is imported, is not missing.
    """
    for each in _chain(error):
        package = (each.name or "").partition(".")[0]
        if isinstance(each, ModuleNotFoundError) and package in EXTRAS and importlib.util.find_spec(package) is None:
            return needs_package(package)
    return None


def _chain(error: BaseException | None) -> Iterator[ImportError]:
    """The import error and those from which it was raised; libraries put words of their own in front of theirs."""
    while isinstance(error, ImportError):
        yield error
        error = error.__cause__ or error.__context__
