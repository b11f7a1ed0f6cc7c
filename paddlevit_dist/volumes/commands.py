"""``paddlevit-dist evaluate landmarks`` and ``components``, and ``prepare plan``."""

import os
from pathlib import Path

from ..core.commands.parser import CommandParser, at_least, path
from ..core.commands.scored import (
    add_options,
    data_set,
    find_predicted,
    load_data_keys,
    print_scores,
    takes_data,
)
from ..core.inference.rows import ROWS_CSV
from ..core.runtime.printing import count, one_line
from ..core.tasks.sample_groups import SUBJECT


def run_components(words: list[str]) -> None:
    """Run ``evaluate components PREDICTIONS DATA``."""
    parser = CommandParser(
        "evaluate components",
        "Decide by Dice, as nnU-Net does, for which classes of label maps only the largest component is kept.",
        ("output/evaluated/predictions nnUNet_raw/Dataset005_X",),
        keys=(),
    )
    found = "folder of label maps: predictions of an evaluation with SAVE_PREDICTIONS, of validation data"
    parser.add_argument("predictions", metavar="PREDICTIONS", type=path, help=found)
    parser.add_argument("data", metavar="DATA", type=path, help="folder with dataset.json and the true labels")
    options = parser.parse_args(words)

    from ..core.launch.stale_resources import working_folder
    from .segmentation.components import LabelPairs, decide_components

    with working_folder("components") as cache:
        keys = load_data_keys(options, "TASK", "volume_segmentation").VOLUMES
        pairs = LabelPairs(options.predictions, options.data, cache, keys.MAX_VOXELS)
        decisions = decide_components(pairs)
    for name, before, after, removes_smaller in decisions:
        verdict = "keep its largest component only" if removes_smaller else "keep all components"
        dice, kept = (f"{value:.4f}" if value == value else "undefined" for value in (before, after))
        print(one_line(f"{name}: Dice {dice}, {kept} with its largest component only: {verdict}"))
    names = ",".join(decision.name for decision in decisions if decision.removes_smaller)
    advice = f"use predict -largest_component={names}, or VOLUMES.LARGEST_COMPONENT [{names}]"
    print(one_line(f"{count(len(pairs), 'volume')}: {advice if names else 'no removal raises the Dice'}"))


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
    if not os.path.isdir(options.results):
        options.results = find_predicted(options.results, ROWS_CSV)

    from . import landmark_files
    from .landmarks import scored

    if not takes_data(options, is_truth=lambda place: os.path.isfile(place) or landmark_files.list_files(place)):
        truth = scored.read_landmarks(options.truth)
        print_scores(
            scored.score(options.results, truth, options.truth, coordinate_system=options.coordinate_system),
            options,
            SUBJECT,
        )
        return
    from ..core.tasks.dataset import dataset_class
    from .dataset import VolumeDataset

    with data_set(options, "landmarks") as (values, cache, origin):
        dataset = dataset_class(values, VolumeDataset).open(values, origin.split, cache)
        identities = list(map(dataset.identity, range(len(dataset))))
        truth, source = scored.landmarks_from_dataset(dataset), str(origin)
        details = dataset.class_names, options.coordinate_system, identities, origin
        print_scores(scored.score(options.results, truth, source, *details), options, dataset.groups_by)


def run_plan(words: list[str]) -> None:
    """Run ``prepare plan DATA FILE``."""
    parser = CommandParser(
        "prepare plan",
        "Choose spacing, patch, levels, kernels, strides, batch and normalization for volumes with label maps by "
        "nnU-Net's rules, and write them to FILE, for -cfg=FILE.",
        ("nnUNet_raw/Dataset005_X plan.yaml -memory_gb=12",),
        keys=(),
    )
    parser.add_argument("data", metavar="DATA", type=path, help="folder with dataset.json, imagesTr and labelsTr")
    parser.add_argument("file", metavar="FILE", type=path, help="YAML file to write")
    parser.option("memory_gb", 8, "memory of a device in GB, by nnU-Net's estimate", at_least(1))
    options = parser.parse_args(words)

    from ..core.launch.stale_resources import working_folder
    from .segmentation.plan_file import write_plan

    with working_folder("prepare") as cache:
        keys, file = load_data_keys(options, "TASK", "volume_segmentation").VOLUMES, Path(options.file)
        for line in write_plan(options.data, file, options.memory_gb, cache, keys.MAX_VOXELS, keys.FOLD):
            print(one_line(line))
    print(one_line(f"written to {options.file}: train with -cfg={options.file}"))
