"""Where and how: the stage contract, the store and its manifests, launchers, resources, profiles, prices and tracking.

Nothing here knows which superworkflow it serves.
"""
