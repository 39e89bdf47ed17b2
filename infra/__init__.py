"""Platform of every superworkflow: stage contract, store, engines, launchers, planning, tracking and orchestration.

Nothing here knows which superworkflow it serves.
"""
