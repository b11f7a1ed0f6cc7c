"""Images of samples for the page of a comparison. They need the data, and Paddle for the task that reads them."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from ...core.registry.lookup import is_bundled
from ...core.runtime.errors import UserError
from ...core.runtime.printing import one_line
from .tables import EvaluationTable

_MOST = 12  # samples of each kind of change
_CONFIGURATIONS = ("config.yaml", "eval_config.yaml")  # of a training run, of an evaluation


class ChangedImages(NamedTuple):
    """Images of changed samples."""

    #: uint8 (height, width[, 3]) by name of the sample, preprocessed for evaluation, with its annotations
    drawn: Mapping[str, np.ndarray] = {}
    problem: str = ""  # why there are no images, as one line; empty if there are some


def choose_samples(samples: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Choose the samples to show: the first if they are sorted by their change, else evenly spaced ones."""
    if len(samples) <= _MOST or "of_first" in samples[0]:
        return list(samples[:_MOST])
    return [samples[place] for place in np.linspace(0, len(samples) - 1, _MOST).astype(int).tolist()]


def draw_images(table: EvaluationTable, names: Sequence[str], data_path: str | None) -> ChangedImages:
    """Draw samples of a table with the run's configuration. Unreadable samples are skipped.

    ``data_path`` replaces the configuration's DATA.DATA_PATH; a UserError says that there are no images.
    """
    if not names:
        return ChangedImages()
    drawn: dict[str, np.ndarray] = {}
    problem = "the data contain none of the changed samples"
    try:
        drawn = _draw(table, names, data_path)
    except (UserError, OSError, ImportError) as error:
        problem = one_line(error)
    if not drawn and data_path is not None:
        raise UserError(f"compare: no images for the page with --data_path={data_path}: {problem}")
    return ChangedImages(drawn, "" if drawn else problem)


def _draw(table: EvaluationTable, names: Sequence[str], data_path: str | None) -> dict[str, np.ndarray]:
    from ...core.checkpoint.records import read_about_file
    from ...core.inference.trained import build_configuration
    from ...core.logging.record import cache_folder
    from ...core.settings.table import effects
    from ...core.tasks.aspects import get_aspect
    from ...core.tasks.listed_samples import open_samples
    from ...core.tasks.protocols import Drawable
    from ...core.tasks.task_factory import make_task

    file = table.file
    ordered = sorted(_CONFIGURATIONS, key=lambda name: name.startswith("eval_") != file.name.startswith("eval_"))
    config_file = next((path for path in (file.with_name(file_name) for file_name in ordered) if path.is_file()), None)
    if config_file is None:
        raise UserError(f"{file.parent} has no {ordered[0]}")
    content = read_about_file(config_file)
    key_effects = effects(content)  # paths of one command, such as PER_SAMPLE, may not exist any more
    settings = {key: value for key, value in content.items() if key_effects.get(key) != "place"}
    words = [f"-output={file.parent}", f"-split={table.about['split']}"]
    words += [] if data_path is None else [f"-data_path={data_path}"]
    config = build_configuration(str(config_file), settings, words=words).values
    if data_path is not None and is_bundled(config.DATA.DATASET):
        raise UserError(f"dataset {config.DATA.DATASET} comes with the package and reads no path; drop --data_path")
    task = make_task(config)
    drawable = get_aspect(task, Drawable)
    if drawable is None:
        raise UserError(f"task {config.TASK} has no images of its samples")
    samples = open_samples(task, config.DATA.SPLIT, cache_folder(config))
    places = {samples.name(index): index for index in range(len(samples))}
    drawn = {}
    for name in dict.fromkeys(names):
        try:
            if name in places:
                ((drawn[name], _),) = drawable.visualize_eval_samples(samples, [places[name]])
        except (UserError, OSError):  # the sample has become unreadable; show the others
            continue
    return drawn
