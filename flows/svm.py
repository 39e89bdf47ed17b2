"""Classes of samples by a linear support vector machine, a vertex program; judged on samples that are held out."""

from superworkflow.flows.linear_model import linear_superworkflow
from superworkflow.infra.contract.metrics import Metric
from superworkflow.tasks.feature_graph import ClassesParams
from superworkflow.tasks.svm import STAGE
from superworkflow.tasks.svm.program import PROGRAM

SUPERWORKFLOW = linear_superworkflow(PROGRAM, STAGE, ClassesParams, (
    Metric("score_samples", "accuracy@test", headline=True, source="test", optional=True, baselines="score_samples"),
))  # fmt: skip
