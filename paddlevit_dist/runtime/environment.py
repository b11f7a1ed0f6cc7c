"""The interpreter that runs a command, what it lacks, and its versions. Needs nothing but Python."""

import importlib.util
import os
import platform
import re
import shlex
import sys
from pathlib import Path
from typing import NoReturn

from .. import __version__
from . import signals

# What any command may import -> its name on pip. Packages for single features explain how to get them on their own.
REQUIRED = {
    "numpy": "numpy",
    "yaml": "PyYAML",
    "yacs": "yacs",
    "PIL": "pillow",
    "tqdm": "tqdm",
    "safetensors": "safetensors",
    "huggingface_hub": "huggingface_hub",
    "msgspec": "msgspec",
    "jinja2": "jinja2",
    "numba": "numba",
    "paddle": "paddlepaddle",
}
ROOT = Path(__file__).resolve().parents[2]
_MARK = "PADDLEVIT_DIST_PYTHON"  # set in a process that has been restarted with the environment next to the package


def program(words: str) -> str:
    """How this process was called, with the command ``words``, for usage lines: "paddlevit-dist train", for example."""
    name = os.path.basename(sys.argv[0])
    if name == "main_multi_gpu.py" and words in ("train", "evaluate"):
        return f"python {name}" + (" -eval" if words == "evaluate" else "")
    return (
        f"python -m paddlevit_dist {words}"
        if name in ("__main__.py", "main_multi_gpu.py")
        else f"paddlevit-dist {words}"
    )


def go_on_beside(error: ModuleNotFoundError) -> str | None:
    """Replace this process with the same command in the package's ``.venv``, created by ``make demo``.

    Args:
        error: what this interpreter could not import.
    Returns:
        A line saying what to install if there is no such environment; None if the module is not in ``REQUIRED``.
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
        repository = shlex.quote(f"{ROOT}{'[cpu]' if 'paddle' in lacking else ''}")  # beside a GPU's Paddle no other
        advice = f"`make demo` in {ROOT} makes {beside.parents[2]}, or {sys.executable} -m pip install -e {repository}"
    return f"not installed for {sys.executable}: {', '.join(missing)}; {advice}"


def restart(python: str = sys.executable, *further: str) -> NoReturn:
    """Replace this process with the same command, and ``further`` words, keeping the current environment variables."""
    sys.stdout.flush()
    sys.stderr.flush()
    signals.block()  # until the new process can handle them
    signals.check()
    os.execv(python, [python, *sys.orig_argv[1:], *further])


def versions() -> str:
    """This package, the Paddle that would be imported, and Python."""
    number = paddle_version()
    paddle = f"paddle {number}" if number else "no paddle"
    return f"paddlevit_dist {__version__}, {paddle}, Python {platform.python_version()}"


def paddle_version() -> str | None:
    """Of the Paddle that would be imported, None without one: read from its file, as importing it takes a second."""
    found = importlib.util.find_spec("paddle")
    if found is None or found.origin is None:
        return None
    file = Path(found.origin).parent / "version" / "__init__.py"
    text = file.read_text(encoding="utf-8") if file.exists() else ""
    stated = re.search(r"^full_version\s*=\s*['\"](.+)['\"]", text, re.MULTILINE)
    return stated.group(1) if stated else "of unknown version"
