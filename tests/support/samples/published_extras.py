"""Files that come with published sets and that no recipe reads: other annotations, notes, lists, sensors."""

import json
from pathlib import Path

_CAPTIONS = {"images": [{"id": 100, "file_name": "000000000100.jpg"}], "annotations": [{"id": 1, "image_id": 100}]}
_KEYPOINTS = {
    "images": [{"id": 100, "file_name": "000000000100.jpg", "height": 40, "width": 56}],
    "categories": [{"id": 1, "name": "person", "keypoints": ["nose"], "skeleton": []}],
    "annotations": [
        {"id": 5, "image_id": 100, "category_id": 1, "bbox": [1, 2, 9, 8], "area": 72, "iscrowd": 0}
        | {"keypoints": [3, 4, 2], "num_keypoints": 1, "segmentation": [[1, 2, 10, 2, 10, 10]]}
    ],
}
_SPLITS = ("train2017", "val2017")
_SCENES = [f"scans/scene{number:04}_00/scene{number:04}_00" for number in range(6)]
_ROOMS = [f"Area_{area}" for area in (1, 2, 5)]
_DRIVES = [f"sequences/{drive}" for drive in ("00", "01", "08")]
_VOC = "VOCdevkit/VOC2007/ImageSets"
_TABLES = "attribute calibrated_sensor ego_pose instance log map sample_annotation sensor visibility".split()

#: by layout: path below the set's folder -> text
EXTRAS: dict[str, dict[str, str]] = {
    "synsets": {
        "LOC_synset_mapping.txt": "n01440764 tench, Tinca tinca\nn02123045 tabby, tabby cat\n",
        ".DS_Store": "x",
    },
    "coco": {
        **{f"annotations/captions_{split}.json": json.dumps(_CAPTIONS) for split in _SPLITS},
        **{f"annotations/person_keypoints_{split}.json": json.dumps(_KEYPOINTS) for split in _SPLITS},
        "annotations/image_info_test2017.json": json.dumps({"images": [], "categories": _KEYPOINTS["categories"]}),
    },
    "voc": {
        f"{_VOC}/Main/aeroplane_train.txt": "000012  1\n000017  1\n000023 -1\n000026 -1\n",
        f"{_VOC}/Main/tvmonitor_val.txt": "000005  1\n000007  1\n",
        f"{_VOC}/Segmentation/train.txt": "000012\n",
        f"{_VOC}/Layout/train.txt": "000012 1\n",
    },
    "ade20k": {"sceneCategories.txt": "ADE_train_00000001 bathroom\n"},
    "cityscapes": {
        "README": "Cityscapes\n",
        "license.txt": "free for non-commercial use\n",
        "gtFine/train/zurich/zurich_000000_000019_gtFine_polygons.json": '{"objects": []}',
        "gtFine/val/munster/munster_000002_000019_gtFine_polygons.json": '{"objects": []}',
    },
    "scannet": {
        **{f"{scene}.txt": "axisAlignment = 1 0 0 0\nnumDepthFrames = 3\n" for scene in _SCENES},
        **{f"{scene}_vh_clean.aggregation.json": '{"segGroups": []}' for scene in _SCENES},
        **{f"{scene}_vh_clean.segs.json": '{"segIndices": []}' for scene in _SCENES},
        "scannetv2-labels.combined.tsv": "id\tcategory\tnyu40id\n1\twall\t1\n",
    },
    "s3dis": {
        **{f"{area}/{area}_alignmentAngle.txt": "## global angle\nhallway_2 90\noffice_1 180\n" for area in _ROOMS},
        **{f"{area}/office_1/.DS_Store": "x" for area in _ROOMS},
    },
    "semantic_kitti": {
        f"{drive}/{name}.txt": "1 0 0 0 0 1 0 0 0 0 1 0\n" for drive in _DRIVES for name in ("poses", "calib", "times")
    },
    "nuscenes": {f"v1.0-mini/{table}.json": "[]" for table in _TABLES}
    | {"maps/36092f0b03a857c6a3403e25b4b7aab3.png": ""},
    "modelnet40": {
        "filelist.txt": "plant/plant_0000.txt\n",
        "modelnet10_shape_names.txt": "bed\nnight_stand\n",
        "modelnet10_train.txt": "bed_0000\nnight_stand_0000\n",
        "modelnet10_test.txt": "bed_1000\nnight_stand_1000\n",
    },
}


def write_extras(layout: str, root: Path) -> None:
    """Write what comes with a layout next to its data."""
    for name, text in EXTRAS.get(layout, {}).items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text, encoding="utf-8")
