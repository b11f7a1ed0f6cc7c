"""Label maps from outlines and run lengths in COCO's format."""

import json
import pickle

import numpy as np
import paddle
import pytest
from PIL import Image
from pycocotools.coco import COCO
from support.files.coco_writer import annotation, write_coco
from support.trainings.small_segmenters import build

from paddlevit_dist import UserError
from paddlevit_dist.core.registry.lookup import annotation_type, guess_dataset
from paddlevit_dist.core.settings import load
from paddlevit_dist.images.detection.data.coco import Coco
from paddlevit_dist.images.detection.data.coco_outlines import CocoOutlines
from paddlevit_dist.images.segmentation.data.label_maps import LabelMaps
from paddlevit_dist.images.segmentation.samples import HOST

SIZE = (20, 30)  # of the writer's images
LABELS = {3: 1, 5: 2, 7: 3}  # of the writer's categories, after the background


def _draw_shape(random):
    """An outline of one or two parts, or run lengths, most of them with holes."""
    if random.random() < 0.3:
        edges = np.sort(random.choice(np.prod(SIZE), 6, replace=False))
        return {"size": [*SIZE], "counts": np.diff([0, *edges.tolist(), int(np.prod(SIZE))]).tolist()}
    return [(random.random(2 * 5) * 30).round(3).tolist() for _ in range(random.integers(1, 3))]


def _write(root, split="train2017", random=None):
    annotations = []
    for number in range(24 if random else 0):
        box = [*random.integers(0, 10, 2).tolist(), *random.integers(4, 12, 2).tolist()]
        more = {"iscrowd": int(random.random() < 0.2), "segmentation": _draw_shape(random)}
        more = {} if random.random() < 0.1 else more  # a box alone
        # the third image has no object, and areas in the file are of no use
        annotations.append(annotation(50 - number, 11 + number % 2, box, int(random.choice([3, 7])), **more))
        annotations[-1]["area"] = float(number)
    return write_coco(root, annotations, split)


def _brute_force(coco, image):
    """The label of each pixel from all masks that cover it, as pycocotools decodes them."""
    found = np.zeros(SIZE, np.uint8)
    objects = coco.imgToAnns[image]
    masks = [coco.annToMask(one) if "segmentation" in one else None for one in objects]
    for row, column in np.ndindex(SIZE):
        covering = [
            (one["iscrowd"], mask.sum(), -position, LABELS[one["category_id"]])
            for position, (one, mask) in enumerate(zip(objects, masks))
            if mask is not None and mask[row, column]
        ]
        boxes = [one["bbox"] for one, mask in zip(objects, masks) if mask is None]
        is_boxed = any(x <= column < x + w and y <= row < y + h for x, y, w, h in boxes)
        found[row, column] = min(covering)[3] if covering else 255 if is_boxed else 0
    return found


@pytest.mark.parametrize("seed", [0, 1])
def test_each_pixel_has_the_class_of_the_smallest_mask_there(tmp_path, cache, seed):
    coco = COCO(str(_write(tmp_path, random=np.random.default_rng(seed))))
    dataset = pickle.loads(pickle.dumps(CocoOutlines(Coco(str(tmp_path), "train", cache))))
    assert dataset.class_names == ["background", "dog", "ant", "cat"] and dataset.num_classes == 4
    for index, number in enumerate((11, 12, 13)):
        image, labels = dataset.read(index)
        expected = _brute_force(coco, number)
        np.testing.assert_array_equal(labels, expected, strict=True)
        np.testing.assert_array_equal(dataset.read_labels(index), expected, strict=True)
        assert image.size == SIZE[::-1] and (set(np.unique(expected)) >= {0, 1, 3} or number == 13)
    unlabeled = CocoOutlines(Coco(str(tmp_path), "train", cache), is_unlabeled_ignored=True)
    assert unlabeled.class_names == ["dog", "ant", "cat"]
    np.testing.assert_array_equal(
        unlabeled.read_labels(0), np.where(expected := _brute_force(coco, 11), expected, 0) - 1
    )


def test_a_network_learns_them_from_the_path_alone(tmp_path):
    for split in ("train2017", "val2017"):
        _write(tmp_path / "data", split, np.random.default_rng(2))
    given = tmp_path / "data/annotations/instances_train2017.json"
    for path in (tmp_path / "data", given):
        assert guess_dataset(str(path), "image_segmentation").dataset == "coco_outlines"
        assert guess_dataset(str(path), "detection").dataset == "coco"
    arguments = [f"-data_path={tmp_path / 'data'}", "-dataset=coco_outlines", "-batch_size=2", "-epochs=2"]
    trainer = build(str(tmp_path / "run"), *arguments)
    values, task = trainer.train(), trainer.task
    counts = [losses["loss"][1] for losses in task.losses]
    assert len(counts) == 2 and all(0 < count <= 2 * 24 * 40 for count in counts)
    coco, samples = COCO(str(tmp_path / "data/annotations/instances_val2017.json")), trainer.datasets["val"]
    trainer.model.eval()
    shared, either = np.zeros(4), np.zeros(4)
    for index, number in enumerate((11, 12, 13)):
        batch = task.collate([samples[index]])
        batch = {name: part if name == HOST else paddle.to_tensor(part) for name, part in batch.items()}
        ((predicted, _),) = task.class_maps(trainer.model, batch)
        truth = _brute_force(coco, number)
        for label in range(4):
            here, there = (predicted == label) & (truth != 255), truth == label
            shared[label], either[label] = shared[label] + (here & there).sum(), either[label] + (here | there).sum()
    np.testing.assert_allclose(values["mIoU"], (shared[either > 0] / either[either > 0]).mean(), rtol=1e-6)


def test_the_name_of_another_layout_is_answered_with_this_one(tmp_path, cache):
    _write(tmp_path, random=np.random.default_rng(0))
    with pytest.raises(UserError, match="no ade20k found, but annotations in COCO's format: -dataset=coco_outlines$"):
        LabelMaps(str(tmp_path), "train", cache, "ade20k")


def test_what_defines_no_label_map_is_refused(tmp_path, cache):
    path = write_coco(tmp_path, [annotation(1, 11, [2.0, 3.0, 4.0, 5.0])])
    with pytest.raises(UserError, match="instances_train2017.json has no masks: boxes define no pixel's class"):
        CocoOutlines(Coco(str(tmp_path), "train", cache))
    content = json.loads(path.read_text())
    content["annotations"][0]["segmentation"] = {"size": [9, 9], "counts": [80, 1]}
    path.write_text(json.dumps(content))
    said = "1.png: the segmentation of its object 1 is of 9 x 9 pixels, the image of 20 x 30"
    with pytest.raises(UserError, match=said):
        CocoOutlines(Coco(str(tmp_path), "train", cache))
    content["annotations"][0]["segmentation"] = [[1, 1, 9, 1, 9, 9]]
    content["categories"] = [{"id": number, "name": f"c{number}"} for number in range(255)]
    path.write_text(json.dumps(content))
    with pytest.raises(UserError, match="has 256 classes; expected 1 to 255"):
        CocoOutlines(Coco(str(tmp_path), "train", cache))
    content["categories"] = content["categories"][:9]
    path.write_text(json.dumps(content))
    dataset = CocoOutlines(Coco(str(tmp_path), "train", cache))
    Image.new("RGB", (8, 8)).save(tmp_path / "train2017/1.png")
    with pytest.raises(UserError, match="8 x 8 pixels"):
        dataset.read(0)


def test_segmentation_takes_them_though_detection_reads_the_files():
    assert annotation_type("dataset", "coco_outlines") == annotation_type("task", "image_segmentation")


def test_keys_of_label_maps_are_told_to_be_unused(tmp_path):
    words = ["-cfg=segformer_b0_shapes", f"-data_path={tmp_path}", "-dataset=coco_outlines"]
    notices = load([*words, "DATA.REDUCE_ZERO_LABEL", "true"]).notices
    assert any("DATA.REDUCE_ZERO_LABEL" in line and "categories of the annotation file" in line for line in notices)
