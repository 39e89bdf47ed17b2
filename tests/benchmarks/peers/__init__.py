"""The peers' side: scripts for the peers' own Python, which cannot import this project; all use `serving`."""
