"""Configuration of a run: profiles, prices, requests."""
