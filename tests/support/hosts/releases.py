"""A clone of the repository and what is built of it."""

import subprocess
import sys
from pathlib import Path

from support.hosts.clones import copy_of_repository

GIT = ["git", "-c", "user.name=A", "-c", "user.email=a@b.c", "-c", "init.defaultBranch=main"]


def committed_clone(folder: Path) -> Path:
    """A repository of one commit, which has everything that is tracked here."""
    copy_of_repository(folder)
    for words in (["init", "-q"], ["add", "-A"], ["commit", "-qm", "all"]):
        subprocess.run([*GIT, *words], cwd=folder, check=True)
    return folder


def release(clone: Path, *words: str) -> subprocess.CompletedProcess:
    command = [sys.executable, str(clone / "tools" / "release.py"), *words]
    return subprocess.run(command, cwd=clone, capture_output=True, text=True)


def files_below(folder: Path, pattern: str) -> dict:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob(pattern) if path.is_file()}
