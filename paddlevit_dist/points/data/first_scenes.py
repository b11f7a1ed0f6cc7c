"""What the first scenes of a dataset say of their colors, classes and unit, before anything is trained."""

from collections.abc import Sequence

import numpy as np

from .scene import Scene
from .scene_store import SceneHeader, build_header

NUM_FIRST = 4  # scenes that are read
_MIN_WIDE_VOXELS, _MIN_SPARSE_VOXELS = 5_000, 20  # beyond both, nearly every voxel has one point and no neighbors


def describe_scenes(scenes: Sequence[Scene], uses_colors: bool) -> list[str]:
    """Return notes if all scenes have odd colors or classes; ``uses_colors``: colors are a feature."""
    scenes = [scene for scene in scenes if len(scene.xyz)]
    if not scenes:
        return []
    notes, these = [], "the first scene" if len(scenes) == 1 else f"the first {len(scenes)} scenes"
    highest = max(int(scene.rgb.max()) for scene in scenes)
    if uses_colors and (highest == 1 or (highest == 0 and len(scenes) > 1)):
        notes.append(
            f"note: no color of {these} exceeds {highest} of 255: if colors are shares from 0 to 1, state rgb_range = "
            "(0, 1) in the class of the data set, or multiply them by 255"
        )
    elif uses_colors and len(scenes) > 1 and all((scene.rgb == scene.rgb[0]).all() for scene in scenes):
        notes.append(f"note: all points of {these} have one color, although POINTS.FEATURES has rgb")
    classes = sorted({int(number) for scene in scenes for number in np.unique(scene.semantic)} - {-100})
    if not classes:
        notes.append(f"note: no point of {these} has a class")
    elif len(classes) == 1 and len(scenes) > 1:
        notes.append(f"note: all points of {these} that have a class have class {classes[0]}")
    return notes


def describe_unit(name: str, header: SceneHeader, voxel_size_m: float) -> str | None:
    """Return a warning if voxels are far too small for a scene, as for scenes in millimeters; None if they are not."""
    extent, spacing = header.extent / voxel_size_m, header.spacing / voxel_size_m  # in voxels
    if extent < _MIN_WIDE_VOXELS or (spacing < _MIN_SPARSE_VOXELS and not header.looks_too_large):
        return None
    return (
        f"scene {name} spans {extent:,.0f} voxels of DATA.VOXEL_SIZE_M, with about {spacing:,.0f} voxels between "
        "neighboring points"
    )


def describe_largest(scenes: Sequence[Scene], voxel_size_m: float) -> str | None:
    """Return ``describe_unit`` of the scene with the sparsest points."""
    headers = [(build_header(scene, labeled=False), scene.name) for scene in scenes if len(scene.xyz)]
    if not headers:
        return None
    header, name = max(headers, key=lambda pair: pair[0].spacing)
    return describe_unit(name, header, voxel_size_m)
