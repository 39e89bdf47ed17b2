"""Belief propagation on a factor graph: sum-product and max-product (Kschischang, Frey and Loeliger, 2001).

A variable sends a factor the product of what it has received from its other ones, and a factor a variable its table
times what it has received from its other ones, summed, or maximised, over them. A message is sent where an entry
differs from the one that the neighbour has by more than `precision`, in proportion to their sum. On a graph without
cycles beliefs are exact.

Ties of max-product, in which the likeliest state of each variable alone may not be a likeliest assignment, are broken
by factors of each state that differ from 1 by less than 10⁻⁶.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from superworkflow.infra.base.errors import UserError
from superworkflow.tasks.bp.program import MOST_SWEEPS, BpParams
from superworkflow.tasks.lib.vertex.program import VertexProgram, keep_fields

_TIES = 1e-6
_FLOOR = 1e-12
"""Sum of two entries from which on they differ in proportion."""


def init(scope: Any, params: Any) -> None:
    """Messages say nothing; a variable's own weights are those of its table."""
    for i in range(scope.degree):
        message = scope.edge(i).out_sent
        states = len(scope.neighbour(i).table) if scope.factor else len(scope.table)
        for x in range(states):
            message[x] = 1.0 / states
    if not scope.factor:
        own, table = scope.own, scope.table
        for x in range(len(table)):
            own[x] = table[x]
            if params.max_product:
                own[x] *= 1.0 + _TIES * scope.random(x)


def update(scope: Any, params: Any) -> float:
    """Receive all messages; to each neighbour goes what the others say. A variable's belief is the product of all."""
    table, belief, zeros, message, states = scope.table, scope.belief, scope.zeros, scope.message, len(scope.table)
    if not scope.factor:
        for x in range(states):
            belief[x] = scope.own[x]
            zeros[x] = 0
        for i in range(scope.degree):
            received, most = scope.edge(i).in_sent, 0.0
            for x in range(states):
                if received[x] > 0.0:
                    belief[x] *= received[x]
                else:
                    zeros[x] += 1  # left out of the product, from which messages are divided
                most = max(most, belief[x])
            for x in range(states):
                belief[x] /= most
    residual = 0.0
    scope.impossible = False
    for i in range(scope.degree):
        if scope.factor:
            states = len(scope.neighbour(i).table)
            for x in range(states):
                message[x] = 0.0
            for entry in range(len(table)):
                value, left, x = table[entry], entry, 0
                for back in range(1, scope.degree + 1 if value > 0.0 else 1):
                    j = scope.degree - back
                    size = len(scope.neighbour(j).table)
                    digit = left % size
                    left //= size
                    if j == i:
                        x = digit
                    else:
                        value *= scope.edge(j).in_sent[digit]
                message[x] = max(message[x], value) if params.max_product else message[x] + value
        else:
            received = scope.edge(i).in_sent
            for x in range(states):
                others = zeros[x] - (received[x] <= 0.0)
                message[x] = 0.0 if others > 0 else belief[x] / received[x] if received[x] > 0.0 else belief[x]
        sent, total, change = scope.edge(i).out_sent, 0.0, 0.0
        for x in range(states):
            total += message[x]
        scope.impossible = scope.impossible or total <= 0.0
        if total > 0.0:
            for x in range(states):
                message[x] /= total
                change = max(change, abs(message[x] - sent[x]) / (message[x] + sent[x] + _FLOOR))
        change *= 1.0 - params.damping
        if change > params.precision:
            for x in range(states):
                sent[x] += (1.0 - params.damping) * (message[x] - sent[x])
            scope.signal(scope.neighbour(i), change)
            residual += change
            if params.damping > 0.0:
                scope.signal(scope, change * params.damping)
    if not scope.factor:
        total = 0.0
        for x in range(states):
            belief[x] *= zeros[x] == 0
            total += belief[x]
        scope.impossible = scope.impossible or total <= 0.0
        for x in range(states if total > 0.0 else 0):
            belief[x] /= total
    return residual


def finish(fields: Mapping[str, Any], params: BpParams) -> dict[str, Any]:
    """The likeliest states, and the beliefs.

    Raises:
        UserError: messages rule out every state of a variable, or of all variables of a factor.
    """
    if fields["impossible"].any():
        vertex, variables = int(fields["impossible"].argmax()), int((~fields["factor"]).sum())
        named = f"variable {vertex}" if vertex < variables else f"factor {vertex - variables} of the graph"
        raise UserError("no assignment is possible, given the zeros in the tables and the evidence", where="bp",
                        value=f"found at {named}", remedy="Correct the evidence or the tables")  # fmt: skip
    return {"label": fields["belief"].argmax(axis=1).astype(np.int32), "belief": fields["belief"]}


_STATES = ("float64", "states")
PROGRAM = VertexProgram(
    name="bp", fields={"factor": "bool", "impossible": "bool", "belief": _STATES, "own": _STATES, "message": _STATES,
                       "zeros": ("int32", "states")},
    init=init, update=update, messages={"sent": _STATES}, graph_fields=("factor",), graph_rows={"table": "float64"},
    finish=finish, params=BpParams, restart=keep_fields, defaults={"precision": 1e-9, "max_sweeps": MOST_SWEEPS},
    help="belief propagation on a factor graph",
)  # fmt: skip
