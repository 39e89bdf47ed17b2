"""Sparse coefficients that predict numbers, by a vertex program; judged on samples that are held out."""

from superworkflow.flows.linear_model import linear_superworkflow
from superworkflow.infra.contract.metrics import Metric
from superworkflow.tasks.feature_graph import SamplesParams
from superworkflow.tasks.lasso import STAGE
from superworkflow.tasks.lasso.program import PROGRAM

SUPERWORKFLOW = linear_superworkflow(PROGRAM, STAGE, SamplesParams, (
    Metric("score_samples", "rmse@test", "minimize", headline=True, source="test", optional=True,
           baselines="score_samples"),
    Metric("score_samples", "r2@test", source="test", optional=True, baselines="score_samples"),
))  # fmt: skip
