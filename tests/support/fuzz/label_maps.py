"""Label maps, outlines and lists of classes, for the table."""

from paddlevit_dist.images.data.class_lists import read_class_list
from paddlevit_dist.images.segmentation.data.label_maps import LabelMaps
from support.files import label_map_layouts as layouts

_LISTS = {
    "classes.csv": "name,r,g,b\nVoid,0,0,0\ncar,128,0,0\ntree 2,0,128,0\n",
    "labelmap.txt": "# label:color_rgb:parts:actions\nVoid:0,0,0::\ncar:128,0,0::\n",
    "id2label.json": '{"3": "wall", "7": "big door"}',
    "meta.json": '{"classes": [{"title": "Void", "color": "#000000"}, {"title": "car", "id": 4}]}',
}


def read(folder):
    """All label maps of a folder, as a training reads them."""
    cache = folder / "cache"
    cache.mkdir(exist_ok=True)
    dataset = LabelMaps(str(folder), "train", cache)
    assert 0 < dataset.num_classes == len(dataset.class_names) <= 255
    for index in range(len(dataset)):
        image, labels = dataset.read(index)
        assert labels.shape == image.size[::-1] and labels[labels != 255].max(initial=0) < dataset.num_classes


def make_lists(folder):
    for name, content in _LISTS.items():
        (folder / name).write_text(content)
    return [folder / name for name in _LISTS]


def read_lists(folder):
    for name in _LISTS:
        found = read_class_list(str(folder / name))
        assert len(found.names) == len(found.numbers)


def make_maps(folder):
    layouts.voc(folder)
    home = folder / "VOCdevkit" / "VOC2012"
    return [*sorted((home / "SegmentationClass").iterdir()), home / "ImageSets" / "Segmentation" / "train.txt"]


def make_colors(folder):
    layouts.cvat_masks(folder)
    return [folder / "SegmentationClass" / "a.png", folder / "labelmap.txt"]


def make_panoptic(folder):
    layouts.coco_panoptic(folder)
    return [folder / "annotations" / "panoptic_train2017.json"]


def make_labelme(folder):
    layouts.labelme(folder)
    return [folder / "a.json"]


def make_yolo(folder):
    layouts.yolo_outlines(folder)
    return [folder / "labels" / "train" / "a.txt", folder / "data.yaml"]
