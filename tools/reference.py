"""The reference library that we are compared with, in an environment of its own."""

import subprocess
import venv

REFERENCE = "adaptive-concurrency==0.1.1"


def python_with_reference(folder):
    """The interpreter of a virtual environment in `folder` that has it; made at the first call."""
    environment = folder / "venv"
    python = environment / "bin" / "python"
    done = environment / REFERENCE
    if not done.exists():
        venv.create(environment, with_pip=True, clear=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", REFERENCE], check=True)
        done.touch()
    return python
