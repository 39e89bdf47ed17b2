"""The dashboard: pages over what runs and sweeps have recorded, and a report of each run made by the same code.

    records (`infra.tracking.run_reader`, a study) → frames (`frames`, `stages`) → figures (`figures`) → pages (`app`)

Frames are pure functions of records. Pages change nothing: they answer GET alone, and read.
"""
