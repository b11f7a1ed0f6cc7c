"""Built-in furnished rooms, so that a first training run on point clouds needs no download."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Optional

from ....contracts.dataset import require_split
from ....errors import UserError
from ..scannet_classes import CLASS_NAMES
from ..scene import Scene
from ..scenes import SceneDataset
from .generator import GENERATOR_VERSION, make_room

_SPLITS = {"train": 0, "val": 1}  # part of each room's seed: the splits share no rooms
_SPACING_RANGE_M = (0.01, 0.2)


class SyntheticRooms(SceneDataset):
    """Bedrooms, bathrooms, kitchens, living rooms and offices with ScanNet's twenty classes, generated on read.

    About 40,000 points per room at the default spacing, in about 30 ms. Furniture has instances, floor and walls have
    none. A room depends on ``seed``, split and index alone; asking for more appends rooms at the end.
    """

    class_names = list(CLASS_NAMES)
    num_classes = len(CLASS_NAMES)
    fixed_classes = CLASS_NAMES

    def __init__(
        self,
        data_path: Optional[str],
        split: str,
        cache_folder: Optional[Path],
        num_train: int = 400,
        num_val: int = 40,
        spacing_m: float = 0.04,
        seed: int = 0,
    ) -> None:
        """Serve ``split``, "train" or "val"; rooms are synthetic, so both paths are ignored.

        Args:
            num_train, num_val: rooms of each split.
            spacing_m: mean distance between neighbouring points, 0.01 to 0.2; the number of points scales with its
                inverse square.
            seed: of all rooms.
        """
        require_split(split, tuple(_SPLITS), "synthetic_rooms")
        low, high = _SPACING_RANGE_M
        if not low <= spacing_m <= high:
            raise UserError(f"spacing of synthetic_rooms is {spacing_m} m; expected {low} to {high}")
        self.split = split
        self.spacing_m = spacing_m
        self.seed = seed
        self._number = num_train if split == "train" else num_val

    @classmethod
    def open(cls, config: Any, split: str, cache_folder: Path) -> SyntheticRooms:
        rooms = config.POINTS.ROOMS
        return cls(config.DATA.DATA_PATH, split, cache_folder, rooms.TRAIN, rooms.VAL, rooms.SPACING_M)

    def __len__(self) -> int:
        return self._number

    def read(self, index: int) -> Scene:
        """Room ``index``."""
        if not 0 <= index < self._number:
            raise IndexError(f"room {index} is outside 0..{self._number - 1}")
        return make_room(index, (self.seed, _SPLITS[self.split]), self.spacing_m, f"{self.split}_{index:05d}")

    def describe(self, index: int) -> str:
        """The room's name and what it was generated from."""
        return f"synthetic room {self.split}_{index:05d} (seed {self.seed}, generator {GENERATOR_VERSION})"
