"""Kubernetes part of engines: pods that a stage has in addition to its own."""
