"""Stages as Kubernetes Jobs: settings, manifests, the launcher, and why a pod ended."""
