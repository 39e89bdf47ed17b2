"""Edge lists and label files: detection, parsing, encoding, vertex order."""
