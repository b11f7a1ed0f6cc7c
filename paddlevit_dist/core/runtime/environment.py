"""The Python interpreter of a command, its packages packages and its versions. Needs nothing but Python."""

import importlib.util
import os
import platform
import re
import shlex
import sys
from pathlib import Path
from typing import NoReturn

from . import signals
from .version import __version__

# Module that any command may import -> its name on pip. Packages for single features have their own advice.
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
PACKAGE = Path(__file__).resolve().parents[2]  # the folder paddlevit_dist, with all rooms
ROOT = PACKAGE.parent
_MARK = "PADDLEVIT_DIST_PYTHON"  # set in a process restarted with the environment next to the package


def program(words: str) -> str:
    """Return how to call this program with the command ``words``, for example "paddlevit-dist train"."""
    name = os.path.basename(sys.argv[0])
    if name == "main_multi_gpu.py" and words in ("train", "evaluate"):
        return f"python {name}" + (" -eval" if words == "evaluate" else "")
    return (
        f"python -m paddlevit_dist {words}"
        if name in ("__main__.py", "main_multi_gpu.py")
        else f"paddlevit-dist {words}"
    )


def restart_in_venv(error: ModuleNotFoundError) -> str | None:
    """Replace this process with the same command in the package's ``.venv``, created by ``make demo``.

    Args:
        error: the failed import of this interpreter.

    Returns:
        A line that says what to install if there is no such environment; None if the module is not in ``REQUIRED``.
    """
    if error.name not in REQUIRED:
        return None
    venv_python = ROOT / ".venv" / "bin" / "python"
    if os.access(venv_python, os.X_OK) and _MARK not in os.environ:
        print(f"{error.name} is not installed for {sys.executable}: continuing with {venv_python}", file=sys.stderr)
        os.environ[_MARK] = str(venv_python)
        restart(str(venv_python))
    modules = [module for module in REQUIRED if module == error.name or importlib.util.find_spec(module) is None]
    packages = [REQUIRED[module] for module in modules]
    advice = f"{sys.executable} -m pip install {' '.join(packages)}"
    if (ROOT / "setup.py").exists():
        # With a GPU's Paddle, do not install another.
        repository = shlex.quote(f"{ROOT}{'[cpu]' if 'paddle' in modules else ''}")
        advice = f"`make demo` in {ROOT} creates {venv_python.parents[1]}, or {sys.executable} -m pip install -e "
        advice += repository
    return f"not installed for {sys.executable}: {', '.join(packages)}; {advice}"


def restart(python: str = sys.executable, *further: str) -> NoReturn:
    """Replace this process with the same command plus ``further`` words, with the current environment variables."""
    sys.stdout.flush()
    sys.stderr.flush()
    signals.block()  # until the new process can handle them
    signals.check()
    os.execv(python, [python, *sys.orig_argv[1:], *further])


def versions() -> str:
    """Return the versions of this package, of the Paddle that would be imported, and of Python."""
    number = paddle_version()
    paddle = f"paddle {number}" if number else "no paddle"
    return f"paddlevit_dist {__version__}, {paddle}, Python {platform.python_version()}"


def paddle_version() -> str | None:
    """Return the version of the Paddle that would be imported, from its file, as an import takes a second; or None."""
    spec = importlib.util.find_spec("paddle")
    if spec is None or spec.origin is None:
        return None
    file = Path(spec.origin).parent / "version" / "__init__.py"
    text = file.read_text(encoding="utf-8") if file.exists() else ""
    match = re.search(r"^full_version\s*=\s*['\"](.+)['\"]", text, re.MULTILINE)
    return match.group(1) if match else "of unknown version"
