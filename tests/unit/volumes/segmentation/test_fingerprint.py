"""All lines about a dataset with label maps, by voxels counted by hand."""

import numpy as np

from paddlevit_dist.volumes.geometry import VolumeGeometry
from paddlevit_dist.volumes.segmentation.dataset import IGNORED, LabelMap, LabelSource, SegmentedVolumes
from paddlevit_dist.volumes.segmentation.fingerprint import fingerprint

SHAPES, LENGTHS = ((4, 5, 6), (6, 5, 8), (5, 7, 9)), ((2.0, 1.5, 1.0), (4.0, 1.5, 1.0), (3.0, 2.0, 1.0))
BOXES, LIVERS, TUMORS, UNLABELED = ((2, 3, 4), (3, 5, 4), (5, 4, 6)), (6, 10, 20), (0, 4, 5), (3, 0, 0)


class CountedVolumes(SegmentedVolumes):
    """Two channels that are 0 outside of a box, the second of the last volume everywhere; no volume has class 3."""

    class_names, channels = ["background", "liver", "tumor", "gone"], ["CT", "noNorm"]

    def __init__(self, has_classes=True) -> None:
        self.has_classes = has_classes

    def __len__(self) -> int:
        return 3

    def stored_labels(self, index):
        inside = np.zeros(BOXES[index], np.uint8)
        end = LIVERS[index] + TUMORS[index]
        inside.reshape(-1)[: LIVERS[index]], inside.reshape(-1)[LIVERS[index] : end] = 1, 2
        labels = np.zeros(SHAPES[index], np.uint8)
        labels[tuple(map(slice, BOXES[index]))] = inside * self.has_classes
        labels.reshape(-1)[labels.size - UNLABELED[index] :] = IGNORED
        geometry = VolumeGeometry(SHAPES[index], np.diag([*LENGTHS[index][::-1], 1.0]))
        return LabelMap.from_array(labels, geometry)

    def stored(self, index):
        labels, box = self.stored_labels(index).array, tuple(map(slice, BOXES[index]))
        channels = np.zeros((2, *SHAPES[index]), np.float32)
        channels[0][box] = np.array([1.0, 40.0 + index, -20.0])[labels[box]]
        if index < 2:
            channels[1][box] = np.array([5.0, 7.0, 9.5])[labels[box]]
        return list(channels)

    def source(self, index):
        """Volume 1 is stored in another order of axes: its depth is the world's y, its height x, its width z."""
        if index != 1:
            return LabelSource(None, self.stored_labels(index).geometry)
        affine = np.array([[0, 1.0, 0, 0], [0, 0, 1.5, 0], [4.0, 0, 0, 0], [0, 0, 0, 1]])
        return LabelSource(None, VolumeGeometry((5, 8, 6), affine))

    def case(self, index):
        return f"case_{index}"


SIZES = [
    "spacing as stored (depth, height, width) of 3 volumes: median 3 x 1.5 x 1, 2 x 1.5 x 1 to 4 x 2 x 1 mm "
    "(VOLUMES.SPACING_MM)",
    "size (depth, height, width): median 15 x 7.5 x 8, 8 x 7.5 x 6 to 24 x 14 x 9 mm (a crop covers VOLUMES.CROP_SIZE "
    "times the spacing)",
]
BOX = "box around nonzero voxels: median 25 % of a volume (VOLUMES.NORMALIZE z_score)"  # 20, 25 and 38.1
CONSTANT = "volumes (channel) whose voxels all have one intensity: case_2 (noNorm)"


def test_all_lines_about_three_volumes(fewer_drawn_voxels):
    """Of 672 voxels with a label, 117, 240 and 315; they have 3, 6 and 6 cubic millimeters."""
    dataset, drawn = CountedVolumes(), []
    for index in range(3):
        labels = dataset.stored_labels(index).array
        inside = np.flatnonzero((labels == 1) | (labels == 2))
        drawn.append(np.random.RandomState(1234).choice(inside, fewer_drawn_voxels // 3))  # nnU-Net's seed
    ct, other = (
        np.concatenate(
            [dataset.stored(index)[channel].ravel()[places] for index, places in enumerate(drawn)], dtype="f8"
        )
        for channel in (0, 1)
    )
    assert np.percentile(ct, (0.5, 50, 99.5)).tolist() == [-20, 41, 42]
    assert np.percentile(other, (0.5, 50, 99.5)).tolist() == [0, 7, 9.5]
    moments = [f"{value:.4g}" for value in (ct.mean(), ct.std(), other.mean(), other.std())]
    assert list(fingerprint(dataset)) == [
        *SIZES,
        "class background: 93.3 % of the voxels, in 3 of 3 volumes, 0.333 to 1.74 ml",
        "class liver: 5.36 % of the voxels, in 3 of 3 volumes, 0.018 to 0.12 ml",
        "class tumor: 1.34 % of the voxels, in 2 of 3 volumes, 0.024 to 0.03 ml",
        "class gone: in none of 3 volumes: a network cannot learn it from them",
        BOX,
        CONSTANT,
        "channel CT within the classes: percentiles 0.5, 50 and 99.5 -20, 41 and 42, mean "
        f"{moments[0]}, deviation {moments[1]} (for VOLUMES.NORMALIZE ct: VOLUMES.INTENSITY_WINDOW [-20,42] "
        f"VOLUMES.INTENSITY_MEAN_STD [{moments[0]},{moments[1]}])",
        "channel noNorm within the classes: percentiles 0.5, 50 and 99.5 0, 7 and 9.5, mean "
        f"{moments[2]}, deviation {moments[3]} (for VOLUMES.NORMALIZE ct: VOLUMES.INTENSITY_WINDOW [0,9.5] "
        f"VOLUMES.INTENSITY_MEAN_STD [{moments[2]},{moments[3]}])",
        "all channels as nnU-Net scales channels of these names: VOLUMES.NORMALIZE [ct,none] VOLUMES.INTENSITY_WINDOW "
        f"[-20.0,42.0] VOLUMES.INTENSITY_MEAN_STD [{ct.mean():.6g},{ct.std():.6g}]",
    ]


def test_all_lines_about_volumes_with_the_background_only():
    dataset = CountedVolumes(has_classes=False)
    assert list(fingerprint(dataset)) == [
        *SIZES,
        "class background: 100 % of the voxels, in 3 of 3 volumes, 0.351 to 1.89 ml",
        *(
            f"class {name}: in none of 3 volumes: a network cannot learn it from them"
            for name in ("liver", "tumor", "gone")
        ),
        BOX,
        CONSTANT,
        "channel CT: no voxel has a class",
        "channel noNorm: no voxel has a class",
    ]
