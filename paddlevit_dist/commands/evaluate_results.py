"""``paddlevit-dist evaluate classes|masks|scenes|landmarks [TRUTH] RESULTS``: score results of any program.

``evaluate_detections`` scores boxes.
"""

import argparse
import contextlib
import functools
import os
import sys
from argparse import Namespace
from collections.abc import Iterator
from typing import Any

from ..runtime.errors import UserError
from ..runtime.printing import one_line
from ..tasks.sample_groups import FOLDER, SUBJECT
from .parser import CommandParser, path
from .scored import add_options, data_set, print_scores, takes_data


def run_classes(words: list[str]) -> None:
    """Run ``evaluate classes [TRUTH] RESULTS``."""
    parser = CommandParser(
        "evaluate classes",
        "Compute top-1, top-5, balanced accuracy and loss of a table: a column of image names, and one for each class "
        "(probabilities or logits) or columns of the best classes. Images are matched by name, with or without "
        "folders and suffix; each image needs a row. Runs without Paddle.",
        ("predictions.csv -data_path=pets", "truth.csv predictions.csv", "probs.csv -cfg=output/run/config.yaml"),
        imports=True,
    )
    add_options(parser, "table with the true class of each image", "table of results, .csv or .tsv", "images")
    parser.add_argument(
        "--logits", "-logits", action="store_true", help="scores are logits: compute the loss of their softmax"
    )
    options = parser.parse_args(words)

    from ..images.classification.result_scores import score

    if not takes_data(options):
        print_scores(score(options.results, options.truth, options.logits), options)
        return
    from ..images.classification.opening import open_images
    from ..images.classification.result_tables import ClassGroundTruth

    with data_set(options, "classification") as (values, cache, origin):
        dataset, _ = open_images(values, origin.split, cache)
        if dataset.labels is None or dataset.num_classes is None:
            raise UserError(f"dataset {origin.dataset} does not have one class for each image")
        number = max(values.MODEL.NUM_CLASSES or 0, dataset.num_classes)
        names = list(dataset.class_names or ())
        classes = [*names, *map(str, range(len(names), number))]
        images = list(map(dataset.identity, range(len(dataset))))
        if dataset.is_random_split:
            print(
                one_line(f"note: the ground truth is the {len(images):,} images that are held out of training"),
                file=sys.stderr,
            )
        truth = ClassGroundTruth(images, dataset.labels.astype("int64"), classes, str(origin))
        print_scores(score(options.results, truth, options.logits, origin), options, dataset.groups_by)


def run_masks(words: list[str]) -> None:
    """Run ``evaluate masks TRUTH RESULTS``."""
    from ..images.data.class_lists import read_class_list
    from ..images.label_maps import LabelMapRules, score

    parser = CommandParser(
        "evaluate masks",
        "Compute the IoU of each class and mIoU of label maps: two folders of PNG files, gray (8 or 16 bits) or with a "
        "palette, whose pixels are class numbers. Files are matched by name; each file of TRUTH needs one of the same "
        "size in RESULTS. Runs without Paddle.",
        ("labels/val predictions", "gtFine/val found -truth_suffix=_gtFine_labelTrainIds.png -classes=cityscapes.txt"),
    )
    add_options(parser, "folder of true label maps", "folder of label maps to score", "images", data=False)
    parser.option(
        "classes",
        None,
        "list of classes, one name per line, from 0, or in the form of a dataset (default: the classes that occur)",
        path,
    )
    parser.option("ignore", 255, "pixel value in TRUTH that is not scored, or none", _parse_ignored, metavar="N")
    meaning = "ignore 0 in TRUTH and read k as class k - 1, the format of ADE20K; RESULTS are not changed"
    parser.add_argument("--reduce_zero_label", "-reduce_zero_label", action="store_true", help=meaning)
    parser.option("truth_suffix", ".png", "suffix of file names in TRUTH", metavar="TEXT")
    parser.option("result_suffix", ".png", "suffix of file names in RESULTS", metavar="TEXT")
    options = parser.parse_args(words)
    classes = None if options.classes is None else read_class_list(options.classes).by_number()
    ends = options.truth_suffix, options.result_suffix
    rules = LabelMapRules(classes, options.ignore, options.reduce_zero_label, *ends)
    print_scores(score(options.truth, options.results, rules), options, FOLDER)


def run_components(words: list[str]) -> None:
    """Run ``evaluate components PREDICTIONS DATA``."""
    parser = CommandParser(
        "evaluate components",
        "Decide by Dice, as nnU-Net does, for which classes of label maps only the largest component is kept.",
        ("output/evaluated/predictions nnUNet_raw/Dataset005_X",),
    )
    found = "folder of label maps: predictions of an evaluation with SAVE_PREDICTIONS, of validation data"
    parser.add_argument("predictions", metavar="PREDICTIONS", type=path, help=found)
    parser.add_argument("data", metavar="DATA", type=path, help="folder with dataset.json and the true labels")
    options = parser.parse_args(words)

    from ..launch.stale_resources import working_folder
    from ..volumes.segmentation.components import LabelPairs, decide_components

    with working_folder("components") as cache:
        pairs = LabelPairs(options.predictions, options.data, cache)
        decisions = decide_components(pairs)
    for name, before, after, removes_smaller in decisions:
        verdict = "keep its largest component only" if removes_smaller else "keep all components"
        print(one_line(f"{name}: Dice {before:.4f}, {after:.4f} with its largest component only: {verdict}"))
    names = ",".join(decision.name for decision in decisions if decision.removes_smaller)
    advice = f"use predict -largest_component={names}, or VOLUMES.LARGEST_COMPONENT [{names}]"
    print(one_line(f"{len(pairs):,} volumes: {advice if names else 'no removal raises the Dice'}"))


def _parse_ignored(text: str) -> int | None:
    """Parse a pixel value, or none."""
    if text == "none":
        return None
    if not text.isdecimal() or int(text) > 65_535:
        raise argparse.ArgumentTypeError(f"'{text}' is not a number from 0 to 65535 or none")
    return int(text)


def run_scenes(words: list[str]) -> None:
    """Run ``evaluate scenes [TRUTH] RESULTS``."""
    from ..points.submission import INSTANCES, SEMANTIC

    parser = CommandParser(
        "evaluate scenes",
        "Compute ScanNet's IoU of classes, or AP of instances, of predictions in its benchmark format: NAME.txt with a "
        "class for each vertex, or with a mask file, a class and a confidence for each instance. TRUTH is a folder of "
        "prepared scenes or ScanNet's download.",
        ("/dataset/scannet_prepared predictions", "predictions.zip -cfg=pointgroup_synthetic_rooms"),
        imports=True,
    )
    add_options(
        parser, "folder of prepared scenes, or ScanNet's download", "folder or zip archive with NAME.txt", "scenes"
    )
    parser.option(
        "list", None, "with ScanNet's download: file of scene names, instead of the split's list", path, metavar="FILE"
    )
    parser.option("kind", None, "what to score (default: detected)", choices=(SEMANTIC, INSTANCES))
    options = parser.parse_args(words)

    from ..points.data.scenes import GROUPS_BY
    from ..points.scored_scenes import score

    takes_data(options, is_truth=lambda _: False)
    with load_scene_truth(options) as truth:
        print_scores(score(options.results, truth, options.kind), options, GROUPS_BY)


@contextlib.contextmanager
def load_scene_truth(options: Namespace) -> Iterator[Any]:
    """Yield the ground truth of the scenes, a ``scored_scenes.SceneGroundTruth``."""
    from ..points.data.scannet_classes import CLASS_NAMES
    from ..points.data.scene_store import CLASSES_FILE
    from ..points.data.scenes import SceneDataset, looks_raw
    from ..points.instances.stuff_classes import find_instance_classes
    from ..points.scored_scenes import SceneGroundTruth
    from ..settings import default_config
    from ..tasks.dataset import dataset_class

    folder = options.data_path
    is_folder = folder is not None and os.path.isdir(folder) and options.cfg is None
    if is_folder and not os.path.exists(os.path.join(folder, CLASSES_FILE)) and looks_raw(folder):
        from ..points.prepare.scannet import ScanNetReader

        reader = ScanNetReader()
        splits = reader.sources(folder, {options.split: options.list})
        sources = splits.get(options.split, [])
        if not sources or not sources[0].labeled:
            raise UserError(f"{folder} has no labeled scenes of {options.split}; it has {', '.join(splits)}")
        names = [scene.name for scene in sources]
        things = functools.partial(find_instance_classes, CLASS_NAMES, None)
        yield SceneGroundTruth(names, map(reader.read, sources), names, list(CLASS_NAMES), things, folder)
        return
    if options.list:
        raise UserError("-list is for ScanNet's download: remove it; -split selects a list of prepared scenes")
    with data_set(options, "semantic_segmentation") as (values, cache, origin):
        dataset = dataset_class(values, SceneDataset).open(values, origin.split, cache)
        scene_names = [dataset.read(index).name for index in range(len(dataset))]  # scenes may not fit in memory
        names = list(dataset.class_names or ())
        points = values.POINTS if "INSTANCES" in values.POINTS else default_config("pointgroup").POINTS
        things = functools.partial(find_instance_classes, names, points.INSTANCES.STUFF_CLASSES)
        identities = list(map(dataset.identity, range(len(dataset))))
        scenes, source = map(dataset.read, range(len(dataset))), str(origin)
        yield SceneGroundTruth(scene_names, scenes, identities, names, things, source, origin)


def run_landmarks(words: list[str]) -> None:
    """Run ``evaluate landmarks [TRUTH] RESULTS``."""
    parser = CommandParser(
        "evaluate landmarks",
        "Compute the mean radial error in mm and detection rates of landmarks in volumes: a folder with a file for "
        "each volume, .fcsv or .mrk.json of 3D Slicer, .json or .csv, or one table for all. TRUTH is in the same "
        "formats, or a dataset. Coordinates are converted between LPS and RAS if files name their system.",
        ("truth found", "found -cfg=output/heads/config.yaml", "heads found -split=val"),
        imports=True,
    )
    add_options(
        parser, "folder of landmark files, or a table", "folder of landmark files, or a table, to score", "volumes"
    )
    parser.option("coordinate_system", None, "coordinate system of files that do not name one", choices=("ras", "lps"))
    options = parser.parse_args(words)

    from ..volumes import landmark_files
    from ..volumes.landmarks import scored

    if not takes_data(options, is_truth=lambda place: os.path.isfile(place) or landmark_files.list_files(place)):
        truth = scored.read_landmarks(options.truth)
        print_scores(
            scored.score(options.results, truth, options.truth, coordinate_system=options.coordinate_system),
            options,
            SUBJECT,
        )
        return
    from ..tasks.dataset import dataset_class
    from ..volumes.dataset import VolumeDataset

    with data_set(options, "landmarks") as (values, cache, origin):
        dataset = dataset_class(values, VolumeDataset).open(values, origin.split, cache)
        identities = list(map(dataset.identity, range(len(dataset))))
        truth, source = scored.landmarks_from_dataset(dataset), str(origin)
        details = dataset.names, options.coordinate_system, identities, origin
        print_scores(scored.score(options.results, truth, source, *details), options, dataset.groups_by)
