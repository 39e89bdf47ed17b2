"""Factors of users and items from ratings, by a vertex program; judged on ratings that are held out."""

from superworkflow.flows.ratings import ratings_superworkflow
from superworkflow.tasks.als import STAGE
from superworkflow.tasks.als.program import PROGRAM

SUPERWORKFLOW = ratings_superworkflow(PROGRAM, STAGE)
