"""The interpreter that a command runs with, and the packages it lacks. Needs nothing but Python."""

from __future__ import annotations

import importlib.util
import os
import re
import shlex
import sys
from pathlib import Path
from typing import List, NoReturn, Optional

# What every command may import -> what pip calls it. Packages of single features say themselves how to get them.
REQUIRED = {
    "numpy": "numpy",
    "yaml": "PyYAML",
    "yacs": "yacs",
    "PIL": "pillow",
    "tqdm": "tqdm",
    "numba": "numba",
    "paddle": "paddlepaddle",
}
ROOT = Path(__file__).resolve().parents[1]
_MARK = "PADDLEVIT_DIST_PYTHON"  # set in a process that has been restarted with the environment beside the package


def go_on_beside(error: ModuleNotFoundError) -> Optional[str]:
    """Replace this process by the same command in ``.venv`` beside the package, made by ``make demo``.

    Args:
        error: what this interpreter could not import.
    Returns:
        If there is no such environment, a line that says what to install; None if the module is none of ``REQUIRED``.
    """
    if error.name not in REQUIRED:
        return None
    beside = ROOT / ".venv" / "bin" / "python"
    if os.access(beside, os.X_OK) and _MARK not in os.environ:
        print(f"{error.name} is not installed for {sys.executable}: continuing with {beside}", file=sys.stderr)
        os.environ[_MARK] = str(beside)
        restart(str(beside))
    lacking = [module for module in REQUIRED if module == error.name or importlib.util.find_spec(module) is None]
    missing = [REQUIRED[module] for module in lacking]
    advice = f"{sys.executable} -m pip install {' '.join(missing)}"
    if (ROOT / "setup.py").exists():
        repository = shlex.quote(f"{ROOT}[cpu]")
        advice = f"`make demo` in {ROOT} makes {beside.parents[1]}, or {sys.executable} -m pip install -e {repository}"
    return f"not installed for {sys.executable}: {', '.join(missing)}; {advice}"


def restart(python: str = sys.executable) -> NoReturn:
    """Replace this process by the same command, with the environment variables as they are now."""
    sys.stdout.flush()
    sys.stderr.flush()
    os.execv(python, [python, *_arguments()])


def _arguments() -> List[str]:
    """What stood behind the interpreter on the command line."""
    if hasattr(sys, "orig_argv"):  # Python 3.10+; keeps the interpreter's flags such as -X
        return sys.orig_argv[1:]
    module = getattr(sys.modules["__main__"], "__spec__", None)
    if module is None:
        return sys.argv
    return ["-m", re.sub(r"\.__main__$", "", module.name), *sys.argv[1:]]
