"""What is installed without any extra, so without Paddle and numba, scores results, compares runs and draws reports."""

import os
import re
import sys
from importlib import metadata
from pathlib import Path

from support.processes import ROOT, Finished, run_command

ALONE = {"OMP_NUM_THREADS": "1", "PYTHONNOUSERSITE": "1"}


def link(folder: Path, needed: list[str]) -> Path:
    """``folder``, with what pip would install for these names, linked from this environment, and nothing else."""
    linked = set()
    while needed:
        name = re.sub(r"[-_.]+", "-", needed.pop()).lower()
        if name in linked:
            continue
        linked.add(name)
        try:
            package = metadata.distribution(name)
        except metadata.PackageNotFoundError:  # of a platform or an extra that is not this one
            continue
        for top in {file.parts[0] for file in package.files or () if file.parts[0] not in ("..", "__pycache__")}:
            (folder / top).unlink(missing_ok=True)
            (folder / top).symlink_to(package.locate_file(top))
        needed += [re.split(r"[^\w.-]", line)[0] for line in package.requires or () if "extra ==" not in line]
    return folder


def core() -> list[str]:
    text = (ROOT / "setup.py").read_text(encoding="utf-8")
    (names,) = re.findall(r"^CORE = \[(.*?)^\]", text, re.MULTILINE | re.DOTALL)
    return re.findall(r'"([\w-]+)>=', names)


def run_with(packages: Path, folder: Path, *words: str) -> Finished:
    """A command with these packages alone."""
    kept = {**ALONE, "PYTHONPATH": os.pathsep.join([str(packages), str(ROOT)])}
    kept["PADDLEVIT_DIST_PYTHON"] = "another"  # it does not go on with the environment beside the repository
    return run_command([sys.executable, "-S", "-m", "paddlevit_dist", *words], folder=folder, **kept)
