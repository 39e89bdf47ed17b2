"""The stages of the second superworkflow: definitions only, as those in `tasks/`."""
