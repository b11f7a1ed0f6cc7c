"""Maps of segments and their lists, and results in COCO's panoptic format, for the table."""

import json

import numpy as np

from paddlevit_dist.images.panoptic.data.segment_maps import SegmentMaps
from paddlevit_dist.images.panoptic.scored_files import read_truth, score
from support.files import segment_layouts as layouts


def read(folder):
    """All segments of a folder, as a training reads them."""
    cache = folder / "cache"
    cache.mkdir(exist_ok=True)
    dataset = SegmentMaps(str(folder), "train", cache)
    assert 0 < dataset.num_classes == len(dataset.class_names) == len(dataset.is_thing) == len(dataset.category_ids)
    for index in range(len(dataset)):
        image, segments = dataset.read(index)
        number = len(segments.labels)
        assert segments.places.shape == image.size[::-1] and -1 <= segments.places.min()
        assert segments.places.max() < number == len(segments.ids) == len(segments.areas) == len(segments.is_crowd)
        assert not number or 0 <= segments.labels.min() <= segments.labels.max() < dataset.num_classes


def make_coco(folder):
    layouts.own_coco(folder)
    return [folder / "panoptic" / "train.json"]


def make_ids(folder):
    layouts.own_ids(folder)
    return [*sorted((folder / "segments" / "train").iterdir()), folder / "categories.json"]


def make_ade20k(folder):
    layouts.ade20k_instances(folder)
    return [place / "training" / "ADE_train_00000001.png" for place in folder.glob("annotations*")]


def make_results(folder):
    """Results beside the truth, of which they are a copy."""
    layouts.own_coco(folder)
    source = folder / "panoptic"
    (folder / "found").mkdir()
    for file in (source / "train").iterdir():
        (folder / "found" / file.name).write_bytes(file.read_bytes())
    content = json.loads((source / "train.json").read_text())
    (folder / "found.json").write_text(json.dumps(content))
    return [folder / "found.json"]


def read_results(folder):
    """The score of the results."""
    report = score(read_truth(str(folder / "panoptic" / "train.json")), str(folder / "found.json"))
    values = report.recompute(np.ones((1, len(report.names))))
    assert all(0 <= column[0] <= 1 or np.isnan(column[0]) for column in values.values())
