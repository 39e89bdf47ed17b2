"""Panels of datasets that several superworkflows have: functions for `infra.contract.panel`."""
