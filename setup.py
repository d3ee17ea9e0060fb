"""Puts a copy of `examples/` beside the package, so that `nanwatch demo` has them where there is no checkout.

Everything else is in pyproject.toml.
"""

import shutil
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py


class WithExamples(build_py):
    def run(self) -> None:
        super().run()
        if not self.editable_mode:
            target = Path(self.build_lib, "nanwatch_examples")
            shutil.rmtree(target, ignore_errors=True)
            shutil.copytree("examples", target, ignore=shutil.ignore_patterns("__pycache__", "*.pyc", "runs"))


setup(cmdclass={"build_py": WithExamples})
