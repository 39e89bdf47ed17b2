"""What is recorded of runs, and the models that they publish."""
