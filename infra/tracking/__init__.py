"""Records of runs, and the models that they publish."""
