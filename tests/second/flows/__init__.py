"""The second superworkflow's diagram."""
