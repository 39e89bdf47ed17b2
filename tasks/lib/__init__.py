"""Library of the stages, by subject."""
