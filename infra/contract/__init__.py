"""Contract of authors: stages, parameters, diagrams, superworkflows and their outcomes."""
