"""Writes the data of a campaign's runs, each set when a run first names it.

Heights, widths and depths differ, splits and classes have unequal sizes, and no names are in alphabetical order.
"""

import re
import shutil
import threading
from pathlib import Path

from support.hosts.range_server import RangeServer
from support.processes import ROOT

from . import class_materials, map_materials, object_materials, space_materials
from .drawn_images import Maker, write_lines


class Materials:
    """The data sets in a folder, and a server of that folder; a context that ends the server."""

    def __init__(self, work: Path) -> None:
        self.folder = work / "data"
        self.folder.mkdir(parents=True, exist_ok=True)
        self.server = RangeServer(self.folder)
        self._lock = threading.RLock()

    def get(self, name: str) -> Path:
        """Return the folder of a data set; write it if it is not there."""
        folder, mark = self.folder / name, self.folder / f"{name}.complete"
        with self._lock:
            if not mark.exists():
                shutil.rmtree(folder, ignore_errors=True)
                MAKERS[name](folder, self)
                mark.touch()
        return folder

    def address(self, name: str) -> str:
        """Return the address of a data set on the server."""
        self.get(name)
        return f"{self.server.address()}{name}"

    def __enter__(self) -> "Materials":
        return self

    def __exit__(self, *_: object) -> None:
        self.server.__exit__()


def _write_transforms(folder: Path, materials: Materials) -> None:
    transforms = "{__class_fullname__: Rotate, limit: [-10, 10], fill_mask: 255, p: 0.5}"
    lines = ["transform:", "  __class_fullname__: Compose", "  transforms:", f"    - {transforms}"]
    write_lines(folder / "transforms.yaml", lines)


def _write_programs(folder: Path, materials: Materials) -> None:
    """The programs and files of the guide to extensions, and tasks of them on fewer images."""
    page = (ROOT / "docs/guides/extending.md").read_text(encoding="utf-8")
    for name, content in re.findall(r"`(\w+\.(?:py|yaml))`:\n\n```\w+\n(.*?)^```", page, re.MULTILINE | re.DOTALL):
        write_lines(folder / name, [content])
    shutil.copy(Path(__file__).with_name("few_dots.py"), folder)
    write_lines(folder / "few_dots.yaml", ["BASE: counting.yaml", "DATA:", "  DATASET: few_dots"])


MAKERS: dict[str, Maker] = {
    **class_materials.MAKERS,
    **object_materials.MAKERS,
    **map_materials.MAKERS,
    **space_materials.MAKERS,
    "transforms": _write_transforms,
    "programs": _write_programs,
}
