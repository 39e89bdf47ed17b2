"""Ground floor: errors, masking of secrets, extras, import strings."""
