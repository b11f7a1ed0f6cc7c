"""A copy of the repository as somebody else gets it."""

import shutil
import subprocess
from pathlib import Path

from support.processes import ROOT


def copy_of_repository(folder: Path) -> Path:
    """Copy what git tracks or would add to ``folder``, and nothing that is there besides; returns ``folder``."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"], cwd=ROOT, stdout=subprocess.PIPE
    )
    for name in filter(None, listed.stdout.decode().split("\0")):
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name)
    return folder
