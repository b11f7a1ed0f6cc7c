"""``paddlevit-dist evaluate scenes [TRUTH] RESULTS``: score results in ScanNet's format of any program."""

import contextlib
import functools
import os
from argparse import Namespace
from collections.abc import Iterator
from typing import Any

from ..core.commands.parser import CommandParser, path
from ..core.commands.scored import add_options, data_set, find_predicted, print_scores, takes_data
from ..core.runtime.errors import UserError


def run(words: list[str]) -> None:
    """Run ``evaluate scenes [TRUTH] RESULTS``."""
    from .submission import INSTANCES, SEMANTIC

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
    options.results = find_predicted(options.results, ".")

    from .data.scenes import GROUPS_BY
    from .scored_scenes import score

    takes_data(options, is_truth=lambda _: False)
    with load_scene_truth(options) as truth:
        print_scores(score(options.results, truth, options.kind), options, GROUPS_BY)


@contextlib.contextmanager
def load_scene_truth(options: Namespace) -> Iterator[Any]:
    """Yield the ground truth of the scenes, a ``scored_scenes.SceneGroundTruth``."""
    from ..core.settings import default_config
    from ..core.tasks.dataset import dataset_class
    from .data.scannet_classes import CLASS_NAMES
    from .data.scene_store import CLASSES_FILE
    from .data.scenes import SceneDataset, looks_raw
    from .instances.stuff_classes import find_instance_classes
    from .scored_scenes import SceneGroundTruth

    folder = options.data_path
    is_folder = folder is not None and os.path.isdir(folder) and not (options.cfg or options.settings)
    if is_folder and not os.path.exists(os.path.join(folder, CLASSES_FILE)) and looks_raw(folder):
        from .prepare.scannet import ScanNetReader

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
    with data_set(options, "pointgroup") as (values, cache, origin):
        dataset = dataset_class(values, SceneDataset).open(values, origin.split, cache)
        scene_names = [dataset.read(index).name for index in range(len(dataset))]  # scenes may not fit in memory
        names = list(dataset.class_names or ())
        points = values.POINTS if "INSTANCES" in values.POINTS else default_config("pointgroup").POINTS
        things = functools.partial(find_instance_classes, names, points.INSTANCES.STUFF_CLASSES)
        least = points.INSTANCES.AP_MIN_POINTS
        identities = list(map(dataset.identity, range(len(dataset))))
        scenes, source = map(dataset.read, range(len(dataset))), str(origin)
        yield SceneGroundTruth(scene_names, scenes, identities, names, things, source, origin, least)
