"""Search spaces, studies and parallel trials."""
