"""The architecture page names files; a newcomer looking for one must find it."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_every_file_and_package_that_the_page_names_is_there():
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    names = set(re.findall(r"`([\w/]+\.py|[\w/]+/)`", page))
    assert len(names) > 50
    package = ROOT / "paddlevit_dist"
    there = {str(path.relative_to(package)) for path in package.rglob("*")} | {path.name for path in ROOT.iterdir()}
    ends = {part for path in there for part in (path, path.rpartition("/")[2])}  # a list of files names its folder once
    assert {name for name in names if name.rstrip("/") not in ends and name != "paddlevit_dist/"} == set()


def test_every_package_is_on_the_image():
    image = (ROOT / "docs" / "architecture.svg").read_text(encoding="utf-8")
    packages = [path.parent.name for path in (ROOT / "paddlevit_dist").glob("*/__init__.py")]
    assert len(packages) > 8 and [name for name in packages if f">{name}</text>" not in image] == []
