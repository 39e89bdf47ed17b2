"""Launcher that runs stages as processes of this machine, forked from one that has their imports."""
