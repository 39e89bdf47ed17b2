"""The work of stage `factor_graph`."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.sparse.csgraph import connected_components

from superworkflow.infra.base.errors import UserError
from superworkflow.infra.contract.stage import Output, StageParams, StageRun
from superworkflow.tasks.factor_graph import DISTANCE
from superworkflow.tasks.factor_graph.uai import FactorModel, read_evidence, read_model
from superworkflow.tasks.lib.edge_list.input_warnings import InputWarning, log_warnings, warning_stats

_SUM = 1e-3
"""Difference from 1 that the sum of a conditional distribution may have."""


def run(job: StageRun[StageParams]) -> Output:
    """Make the factor graph; see `tasks.factor_graph`.

    Raises:
        UserError: a file is malformed (see `tasks.factor_graph.uai`), or a variable has no possible state.
    """
    source = job.sources["factors"]
    model = read_model(source.local(job.scratch), source.uri)
    evidence: dict[int, int] = {}
    if (given := job.sources.get("evidence")) is not None:
        evidence = read_evidence(given.local(job.scratch), given.uri, model.states)
    doubts: list[InputWarning] = []
    if (doubted := _no_distribution(model)) >= 0:
        turned = _first_fastest(model)
        is_turned = _no_distribution(turned) < 0
        model = turned if is_turned else model
        doubts.append(InputWarning(
            "its entries are no conditional distribution of its last variable as the format orders them. "
            + ("All tables are if their first variable changes fastest, as pgmpy writes them, and are read so"
               if is_turned else "All tables are taken as factors"),
            f"{source.uri}: table of factor {doubted}", "sums other than 1",
            "Write MARKOV as the first word of a product of factors that are no distributions" if not is_turned
            else "Compare a marginal with the program that wrote the file",
        ))  # fmt: skip
    log_warnings(job.progress, doubts)
    weights, log_constant = _of_variables(model, evidence, source.uri)
    joint = _joined(model)
    variables, factors = len(model.states), len(joint)
    arities = np.array([len(scope) for scope, _ in joint], np.int64)
    joined = np.array([variable for scope, _ in joint for variable in scope], np.int64)
    vertex = np.repeat(np.arange(variables, variables + factors), arities)
    degrees = np.concatenate([np.bincount(joined, minlength=variables), arities])
    by_variable = np.argsort(joined, kind="stable")
    tables = [*weights, *(table for _, table in joint)]
    job.output.array("indptr.npy", np.concatenate([[0], np.cumsum(degrees)]))
    job.output.array("indices.npy", np.concatenate([vertex[by_variable], joined]).astype(np.int32))
    job.output.array("factor.npy", np.arange(variables + factors) >= variables)
    job.output.array("table.npy", np.concatenate(tables))
    job.output.array("table_indptr.npy", np.cumsum([0, *map(len, tables)]))
    zeros = int(sum((table == 0).sum() for table in tables[variables:]))
    job.progress.log(f"{variables} variables, {len(evidence)} observed; {factors} factors of two or more")
    return Output(
        rows=variables,
        stats={
            "vertices": variables + factors, "edges": len(joined), "directed": False, "weighted": False,
            "variables": variables, "factors": factors, "states": int(model.states.max()), "observed": len(evidence),
            "cycles": _cycles(weights, joined, vertex), "zeros": zeros, "log_constant": log_constant,
            "distance": DISTANCE, **warning_stats(doubts),
        },
    )  # fmt: skip


def _of_variables(model: FactorModel, evidence: dict[int, int], where: str) -> tuple[list[NDArray[np.float64]], float]:
    """Weights of each variable's states by evidence and factors of it alone, 1 at most; and the log of the divisor."""
    weights, log_constant = [np.ones(states) for states in model.states], 0.0
    for scope, table in zip(model.scopes, model.tables, strict=True):
        if len(scope) == 0:
            log_constant += float(np.log(table[0]))
        elif len(scope) == 1:
            log_constant += float(np.log(table.max()))
            weights[scope[0]] *= table / table.max()
    for variable, state in evidence.items():
        weights[variable][np.arange(len(weights[variable])) != state] = 0.0
    for variable, weight in enumerate(weights):
        if not weight.any():
            observed = f"observed in state {evidence[variable]}" if variable in evidence else None
            raise UserError("no state of a variable has a weight above 0", where=f"{where}: variable {variable}",
                            value=observed, remedy="Correct its factors, or the evidence")  # fmt: skip
        log_constant += float(np.log(weight.max()))
        weight /= weight.max()
    return weights, log_constant


def _cycles(weights: list[NDArray[np.float64]], variable: NDArray[np.int64], factor: NDArray[np.int64]) -> int:
    """Independent cycles of the edges between a variable and a factor, [edges] each, but those by fixed variables."""
    size = len(weights) + len(np.unique(factor))
    free = np.array([np.count_nonzero(weight) > 1 for weight in weights])[variable]
    edges = sp.csr_array((np.ones(int(free.sum())), (variable[free], factor[free])), shape=(size, size))
    return int(free.sum()) - size + int(connected_components(edges, directed=False)[0])


def _joined(model: FactorModel) -> list[tuple[list[int], NDArray[np.float64]]]:
    """Ascending variables and table of each factor of two or more, multiplied into one that has all its variables.

    The product of all is the same, and has fewer cycles: those with no more than one factor's variables.
    """
    kept: dict[int, tuple[list[int], NDArray[np.float64]]] = {}
    having: dict[int, list[tuple[set[int], int]]] = defaultdict(list)
    for factor in sorted(range(len(model.scopes)), key=lambda each: -len(model.scopes[each])):
        scope = model.scopes[factor]
        if len(scope) < 2:
            break
        table, ascending, variables = model.tables[factor], sorted(scope), set(scope)
        if scope != ascending:
            table = table.reshape(model.states[scope]).transpose(np.argsort(scope)).ravel()
        fewest = min((having[variable] for variable in variables), key=len)
        within = next((other for wider, other in fewest if variables <= wider), None)
        if within is None:
            kept[factor] = ascending, table
            for variable in variables:
                having[variable].append((variables, factor))
        else:
            wider_scope, wider_table = kept[within]
            sizes = model.states[wider_scope]
            table = table.reshape(np.where(np.isin(wider_scope, scope), sizes, 1))
            kept[within] = wider_scope, (wider_table.reshape(sizes) * table).ravel()
    return [kept[factor] for factor in sorted(kept)]


def _first_fastest(model: FactorModel) -> FactorModel:
    """The model of a file whose tables change fastest in the first variable."""
    turned = [
        table.reshape(model.states[scope[::-1]]).transpose().ravel() if scope else table
        for scope, table in zip(model.scopes, model.tables, strict=True)
    ]
    return model._replace(tables=turned)


def _no_distribution(model: FactorModel) -> int:
    """A factor of a Bayesian network whose table is no conditional distribution of its last variable, or -1."""
    for factor, (scope, table) in enumerate(zip(model.scopes, model.tables, strict=True)):
        if model.kind == "BAYES" and len(scope):
            sums = table.reshape(-1, model.states[scope[-1]]).sum(axis=1)
            if np.abs(sums - 1).max() > _SUM:
                return factor
    return -1
