"""A second superworkflow, small but real: measurements of patients, one regression twice with parameters of its own.

It shares nothing with Node2Vec but the platform. In processes of their own its stages and flow are found like those of
the project, since `site/sitecustomize.py` puts their folders beside the project's.
"""
