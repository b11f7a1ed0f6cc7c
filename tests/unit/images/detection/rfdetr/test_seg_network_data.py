"""RF-DETR Seg on a file in COCO's format with all that people's files have, beside COCO's own tools."""

import numpy as np
import pytest
from pycocotools.coco import COCO
from support.files.coco_writer import annotation, write_coco, write_image
from support.trainings.small_runs import make_trainer

SIDE = 64  # the network's
SMALL = 0.2  # pixels


def _annotations():
    """Objects of images 1 to 4; image 5 has none."""
    hole = np.zeros((SIDE, SIDE), int)
    hole[8:40, 10:50] = 1
    hole[16:30, 20:40] = 0
    edges = np.flatnonzero(np.diff(hole.T.ravel(), prepend=0, append=0)).tolist()
    counts = np.diff([0, *edges, SIDE * SIDE]).tolist()
    parts = [[2.25, 3.125, 20.5, 3.125, 20.5, 22.75], [40.0, 40.0, 60.0, 41.5, 50.0, 60.333]]
    tiny = [[30.0, 30.0, 30.0 + SMALL, 30.0, 30.0 + SMALL, 30.0 + SMALL]]  # covers no pixel
    shapes = [
        (1, {"size": [SIDE, SIDE], "counts": counts}, [10, 8, 40, 32], 0),
        (1, {"size": [SIDE, SIDE], "counts": [100, 900, SIDE * SIDE - 1000]}, [1, 0, 15, 64], 1),  # a crowd
        (2, parts, [2.25, 3.125, 57.75, 57.208], 0),
        (2, tiny, [30, 30, SMALL, SMALL], 0),
        (3, tiny, [30, 30, SMALL, SMALL], 0),
        (4, {"size": [SIDE, SIDE], "counts": [0, 500, SIDE * SIDE - 500]}, [0, 0, 8, 64], 1),  # nothing but a crowd
    ]
    return [
        annotation(7 * number, image, box, (3, 7)[number % 2], segmentation=shape, iscrowd=crowd)
        for number, (image, shape, box, crowd) in enumerate(shapes, 1)
    ]


def _write(root):
    images = [{"id": n, "file_name": f"{n}.png", "height": SIDE, "width": SIDE} for n in range(1, 6)]
    for split in ("train2017", "val2017"):
        for image in images:
            write_image(root / split / image["file_name"], SIDE, SIDE, image["id"])
        path = write_coco(root, _annotations(), split, images)
    return COCO(str(path))


def _build(folder, *words):
    recipe = ["-cfg=rfdetr_seg_shapes", "-dataset=coco", f"-data_path={folder / 'data'}", "-batch_size=5", "-epochs=2"]
    recipe += ["-ngpus=1", "-num_workers=0", "TRAIN.WARMUP_STEPS", "0", "DATA.HORIZONTAL_FLIP", "0", "REPORT", "False"]
    return make_trainer(folder / "run", [*recipe, *words])


def test_masks_are_those_of_coco_s_tools_without_crowds(tmp_path):
    coco, trainer = _write(tmp_path / "data"), _build(tmp_path)
    samples = trainer.datasets["train"]
    batch = trainer.task.collate([samples[index] for index in range(5)])
    assert batch["box_counts"].tolist() == [1, 2, 1, 0, 0] and batch["masks"].shape == (5, 2, SIDE, SIDE)
    for row in range(5):
        objects = [one for one in coco.imgToAnns[row + 1] if not one["iscrowd"]]
        expected = [coco.annToMask(one) for one in objects]
        np.testing.assert_array_equal(batch["masks"][row, : len(objects)], np.reshape(expected, (-1, SIDE, SIDE)))
        assert batch["labels"][row, : len(objects)].tolist() == [
            {3: 0, 5: 1, 7: 2}[one["category_id"]] for one in objects
        ]
    assert not batch["masks"][1, 1].any() and batch["masks"][0, 0].sum() == 32 * 40 - 14 * 20


@pytest.mark.parametrize("words", [(), ("DATA.MOSAIC", "1", "DATA.COPY_PASTE", "1")])
def test_two_updates_and_the_scores_of_an_evaluation(tmp_path, words):
    _write(tmp_path / "data")
    trainer = _build(tmp_path, *words)
    before = {name: value.numpy().copy() for name, value in trainer.model.state_dict().items()}
    values = trainer.train()
    assert {"AP", "mask AP"} <= set(values) and np.isfinite(list(values.values())).all()
    after = {name: value.numpy() for name, value in trainer.model.state_dict().items()}
    assert all(np.isfinite(value).all() for value in after.values())
    assert not np.array_equal(
        before["mask_head.spatial_features_proj.weight"], after["mask_head.spatial_features_proj.weight"]
    )
