"""A second superworkflow, small but real: patients, their practices and who resembles whom, one regression twice.

It shares nothing with Node2Vec but the platform. `site/` holds the metadata of an installed package whose entry points
name its flow and stages; processes that have that folder on their path find them.
"""
