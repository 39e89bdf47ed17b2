"""Builds from what packages hold now, not from what an earlier build left or listed."""

from __future__ import annotations

import shutil
from pathlib import Path

from setuptools import setup
from setuptools.command.build import build
from setuptools.command.sdist import sdist


class FreshBuild(build):
    """A build into an empty folder: setuptools packs all that `build/lib` holds, deleted modules included."""

    def run(self) -> None:
        shutil.rmtree(self.build_lib, ignore_errors=True)
        super().run()


class FreshSdist(sdist):
    """An sdist that does not inherit the file list of the last one, which setuptools reads from SOURCES.txt."""

    def run(self) -> None:
        for listed in Path().glob("*.egg-info/SOURCES.txt"):
            listed.unlink()
        super().run()


setup(cmdclass={"build": FreshBuild, "sdist": FreshSdist})
