"""Factors of users and items from ratings, drawn by a vertex program; judged on ratings that are held out."""

from superworkflow.flows.ratings import ratings_superworkflow
from superworkflow.tasks.bptf import STAGE
from superworkflow.tasks.bptf.program import PROGRAM

SUPERWORKFLOW = ratings_superworkflow(PROGRAM, STAGE)
