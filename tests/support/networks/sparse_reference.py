"""Sparse convolution with dictionaries and loops, a reference for the fast one."""

import itertools
from collections.abc import Iterable, Iterator, Sequence

import numpy as np


def scene(
    generator: np.random.Generator, voxels: int, dimension: int = 3, scenes: int = 2, reach: int = 5
) -> np.ndarray:
    """Distinct random voxels, some negative, in no order; int32 (<= voxels, 1 + dimension)."""
    coordinates = generator.integers(-reach, reach, (voxels, 1 + dimension))
    coordinates[:, 0] = generator.integers(0, scenes, voxels)
    return generator.permutation(np.unique(coordinates, axis=0)).astype(np.int32)


def coarse(coordinates: np.ndarray, stride: int) -> np.ndarray:
    """The distinct ``floor(c / stride) * stride``, sorted."""
    voxels = {(row[0], *((value // stride) * stride for value in row[1:])) for row in coordinates.tolist()}
    return np.array(sorted(voxels), np.int64).reshape(-1, coordinates.shape[1])


def sides(values: int | Sequence[int], dimension: int) -> list[int]:
    return [values] * dimension if isinstance(values, int) else list(values)


def list_offsets(kernel: int | Sequence[int], dimension: int) -> list[tuple[int, ...]]:
    """First axis fastest; odd sides centered, even ones forward."""
    steps = [range(-(side // 2), side // 2 + 1) if side % 2 else range(side) for side in sides(kernel, dimension)]
    return [offset[::-1] for offset in itertools.product(*reversed(steps))]


def given_by(offsets: Iterable, fine: np.ndarray, coarse: np.ndarray) -> Iterator[tuple[int, int, int]]:
    """Triples (k, row of the coarse voxel, row of the fine one) with fine = coarse + offset."""
    rows = {tuple(voxel): row for row, voxel in enumerate(fine.tolist())}
    for k, offset in enumerate(offsets):
        for u, (scene, *voxel) in enumerate(coarse.tolist()):
            v = rows.get((scene, *(one + step for one, step in zip(voxel, offset))))
            if v is not None:
                yield k, u, v


def pairs(fine: np.ndarray, target: np.ndarray, kernel_size: int, step: int) -> dict[int, list[tuple[int, int]]]:
    """{kernel offset: [(row of the coarse voxel, row of the fine voxel)]}."""
    steps = [tuple(step * shift for shift in offset) for offset in list_offsets(kernel_size, fine.shape[1] - 1)]
    result: dict[int, list[tuple[int, int]]] = {k: [] for k in range(len(steps))}
    for k, u, v in given_by(steps, fine, target):
        result[k].append((u, v))
    return result


def convolve(x: np.ndarray, weight: np.ndarray, found: dict[int, list[tuple[int, int]]], rows: int, transposed=False):
    """``out[u] += x[v] @ weight[k]`` for all pairs (u, v), or the roles of the two exchanged."""
    out = np.zeros((rows, weight.shape[2]))
    for k, meetings in found.items():
        for u, v in meetings:
            out_row, in_row = (v, u) if transposed else (u, v)
            out[out_row] += x[in_row] @ weight[k]
    return out
