"""Samples of images with keypoints for a network that detects objects."""

import numpy as np
import pytest
from support.files.keypoint_writer import posed, write_keypoints

from paddlevit_dist.core.settings import load
from paddlevit_dist.images.detection.data.samples import DetectionSamples, collate, open_samples
from paddlevit_dist.images.detection.data.transforms import DetectionTrainingTransform, crop
from paddlevit_dist.images.keypoints.data.coco_keypoints import CocoKeypoints
from paddlevit_dist.images.keypoints.data.drawn_figures import DrawnFigures
from paddlevit_dist.images.keypoints.data.keypoint_dataset import KeypointDataset, KeypointsPart


def test_a_batch_has_the_points_of_each_object():
    transform = DetectionTrainingTransform((80,), 200, 1.0, 0.0)
    dataset = DrawnFigures(None, "train", None, num_train=4, per_image=(1, 4))
    samples = DetectionSamples(dataset, transform, is_training=True)
    read = [samples.read_sample(index, np.random.default_rng(index)) for index in range(4)]
    batch = collate(read)
    most = max(len(sample.labels) for sample in read)
    assert batch["points"].shape == (4, most, 7, 3) and batch["points"].dtype == np.float32
    for index, sample in enumerate(read):
        image, annotations = dataset.read(index)
        scale = sample.image.shape[2] / image.width, sample.image.shape[1] / image.height
        mirrored = annotations.points[np.arange(len(sample.labels))[:, None], dataset.mirrors[annotations.labels]]
        x = np.where(mirrored[:, :, 2] > 0, (image.width - 1 - mirrored[:, :, 0]) * scale[0], 0)
        np.testing.assert_allclose(batch["points"][index, : len(x), :, 0], x, atol=1e-4)
        np.testing.assert_array_equal(batch["points"][index, : len(x), :, 2], mirrored[:, :, 2])
        assert not batch["points"][index, len(x) :].any()


def test_objects_without_points_are_not_learned(tmp_path, cache):
    write_keypoints(tmp_path, [posed(1, 11, [0.0] * 9), posed(2, 12), posed(3, 12, [0.0] * 9), posed(4, 13, iscrowd=1)])
    dataset = CocoKeypoints(str(tmp_path), "train", cache)
    assert dataset.object_counts().tolist() == [[0, 0], [1, 1], [0, 0]]
    samples = DetectionSamples(dataset, DetectionTrainingTransform((20,), 30, 0.0, 0.0), is_training=True)
    sample = samples.read_sample(1, np.random.default_rng(0))
    assert sample.points.tolist() == [[[4, 5, 2], [8.5, 6, 1], [0, 0, 0]]] and sample.boxes.shape == (1, 4)


def test_objects_whose_points_are_all_cut_off_are_not_learned(tmp_path, cache):
    far = posed(2, 12, [20.0, 8, 2, 22, 9, 1, 21, 7, 2], [3, 4, 20, 10], area=50)
    write_keypoints(tmp_path, [posed(1, 11), far, posed(3, 12), posed(4, 12, [0.0, 1, 1, 25, 9, 2, 0, 0, 0])])
    dataset = CocoKeypoints(str(tmp_path), "train", cache)
    samples = DetectionSamples(dataset, lambda view, _: crop(view, 0, 0, (20, 15)), is_training=True)
    sample = samples.read_sample(1, np.random.default_rng(0))
    assert sample.points.tolist() == [
        [[4, 5, 2], [8.5, 6, 1], [0, 0, 0]],
        [[0, 1, 1], [0, 0, 0], [0, 0, 0]],
    ]
    assert sample.labels.tolist() == [0, 0] and sample.boxes.shape == (2, 4) and len(sample.areas) == 2
    assert sample.points.dtype == sample.areas.dtype == np.float32


@pytest.mark.parametrize("pairs", ["[left_wing/right_wing]", "[]"])
def test_images_are_mirrored_only_if_points_have_pairs(tmp_path, cache, pairs):
    write_keypoints(tmp_path, [posed(1, 11), posed(2, 12)])
    words = [
        "TASK",
        "keypoint_detection",
        "-dataset=coco_keypoints",
        f"-data_path={tmp_path}",
        "KEYPOINTS.PAIRS",
        pairs,
    ]
    words += ["MODEL.NAME", "detrpose_hgnetv2_n", "DATA.HORIZONTAL_FLIP", "1.0", f"-output={tmp_path}/run"]
    config = load(words).values
    samples = open_samples(config, "train", cache, True, base=KeypointDataset, part=KeypointsPart)
    assert samples.transform.flip_probability == (pairs != "[]")
    told = "images are not mirrored in training, since not all points have mirrored pairs"
    assert (told in samples.notices) == (pairs == "[]")
