"""The synthetic rooms, each generated once in a process: furnishing them takes most of a test's time."""

import functools
from collections.abc import Iterator

import pytest

from paddlevit_dist.core.registry.register import register_dataset
from paddlevit_dist.points.data.rooms import SyntheticRooms
from paddlevit_dist.points.data.scene import Scene


@functools.cache
def read_room(split: str, index: int, spacing_m: float) -> Scene:
    """Room ``index`` of a split, whose arrays nobody changes."""
    return SyntheticRooms(None, split, None, index + 1, index + 1, spacing_m).read(index)


class RememberedRooms(SyntheticRooms):
    """``synthetic_rooms`` that are not generated again."""

    def read(self, index: int) -> Scene:
        if not 0 <= index < len(self):
            raise IndexError(index)
        return read_room(self.split, index, self.spacing_m)


@pytest.fixture(scope="module", autouse=True)
def remembered_rooms(registered_names: None) -> Iterator[None]:
    """Register them while a module's tests run: -dataset=remembered_rooms."""
    register_dataset("remembered_rooms", RememberedRooms)
    yield
