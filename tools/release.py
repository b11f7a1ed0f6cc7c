"""Build the files of a release: a source archive of this commit, and the wheel built from it.

Usage: python tools/release.py [FOLDER]

FOLDER is dist by default. The version is in paddlevit_dist/core/runtime/version.py; CHANGELOG.md must have a section
for it, and a version's tag on this commit must agree. Uncommitted changes are not included.
Needs git, and setuptools as in the extra dev. RELEASING.md has the steps before and after.
"""

import hashlib
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SDIST = "import setuptools.build_meta as b, sys; b.build_sdist(sys.argv[1])"  # what `python -m build` calls
VERSION_FILE = "paddlevit_dist/core/runtime/version.py"
PIP = [sys.executable, "-m", "pip", "-q", "--disable-pip-version-check"]


def main():
    """Build the source archive and the wheel, and print their checksums."""
    folder = Path(sys.argv[1] if sys.argv[1:] else "dist").absolute()
    with tempfile.TemporaryDirectory() as source:
        archive = subprocess.run(["git", "archive", "HEAD"], cwd=ROOT, stdout=subprocess.PIPE, check=True).stdout
        subprocess.run(["tar", "-x", "-C", source], input=archive, check=True)
        version = read_version(Path(source))
        if folder.exists() and any(folder.iterdir()):
            sys.exit(f"error: {folder} contains other files: remove it first")
        folder.mkdir(parents=True, exist_ok=True)
        subprocess.run([sys.executable, "-c", SDIST, str(folder)], cwd=source, stdout=subprocess.DEVNULL, check=True)
    (sdist,) = folder.iterdir()
    subprocess.run([*PIP, "wheel", "--no-deps", "--no-build-isolation", f"-w{folder}", str(sdist)], check=True)
    print(f"version {version}")
    for file in sorted(folder.iterdir()):
        print(f"{hashlib.sha256(file.read_bytes()).hexdigest()}  {file.name}")


def read_version(source):
    """Read the version of the package in ``source``; exit unless CHANGELOG.md and a tag on this commit agree."""
    version = re.search(r'__version__ = "(.+)"', (source / VERSION_FILE).read_text("utf-8"))[1]
    tags = subprocess.run(
        ["git", "tag", "--points-at", "HEAD"], cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True
    )
    tagged = [tag for tag in tags.stdout.split() if re.match(r"v\d", tag)]
    if tagged and tagged != [f"v{version}"]:
        sys.exit(
            f"error: this commit has the tag {', '.join(tagged)}, but {VERSION_FILE} says {version}: "
            f"correct __version__ and move the tag, or tag v{version}"
        )
    sections = dict(re.findall(r"^## (\S+) - (.+)$", (source / "CHANGELOG.md").read_text("utf-8"), re.M))
    number = version.partition(".dev")[0]
    if number not in sections:
        sys.exit(f"error: CHANGELOG.md has no section '## {number} - unreleased', or with a date")
    if tagged and not re.fullmatch(r"\d{4}-\d\d-\d\d", sections[number]):
        sys.exit(f"error: CHANGELOG.md says '## {number} - {sections[number]}': write the date there, and move the tag")
    return version


if __name__ == "__main__":
    main()
