"""Limits of CSR construction, known without compiled kernels."""

BUCKET = 1 << 15
"""Edges that a bucket should hold."""
MOST_BUCKETS = 4096
"""Buckets written to at a time: more would thrash the address translation."""
MOST_ARCS = MOST_BUCKETS * BUCKET
"""Arcs in flight, unless one row has more."""
PIECE = 1 << 22
"""Arcs of a piece of rows."""
MOST_WORKERS = 8
"""Workers with counters of their own; more gain little where memory is the limit."""
