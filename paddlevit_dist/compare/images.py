"""Images of samples for the page of a comparison, where the data can be read: it needs Paddle, as their task does."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from ..registry import EMBEDDED
from ..runtime.errors import UserError
from ..runtime.printing import one_line
from .tables import EvaluationTable

_MOST = 12  # of a kind
_CONFIGURATIONS = ("config.yaml", "eval_config.yaml")  # of a training, of an evaluation


class ChangedImages(NamedTuple):
    """Of samples that changed.

    Attributes:
        drawn: name of a sample -> uint8 (height, width[, 3]), as an evaluation sees it, with what is annotated.
        problem: why there are none, in one line; empty where there are some.
    """

    drawn: Mapping[str, np.ndarray] = {}
    problem: str = ""


def choose_samples(samples: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Those of a kind that are shown: the first where they are ordered by their change, else some of all."""
    if len(samples) <= _MOST or "of_first" in samples[0]:
        return list(samples[:_MOST])
    return [samples[place] for place in np.linspace(0, len(samples) - 1, _MOST).astype(int).tolist()]


def draw(table: EvaluationTable, names: Sequence[str], data_path: str | None) -> ChangedImages:
    """Images of samples of a table, as the run's own configuration reads them; without those that cannot be read.

    Args:
        data_path: in place of the configuration's DATA.DATA_PATH.
    Raises:
        UserError: there are none at the ``data_path`` that was given.
    """
    if not names:
        return ChangedImages()
    drawn: dict[str, np.ndarray] = {}
    problem = "the data have none of the samples that changed"
    try:
        drawn = _draw(table, names, data_path)
    except (UserError, OSError, ImportError) as error:
        problem = one_line(error)
    if not drawn and data_path is not None:
        raise UserError(f"compare: no images for the page with --data_path={data_path}: {problem}")
    return ChangedImages(drawn, "" if drawn else problem)


def _draw(table: EvaluationTable, names: Sequence[str], data_path: str | None) -> dict[str, np.ndarray]:
    from ..checkpoint.content import read_about_file
    from ..inference.trained import build_configuration
    from ..logging.record import cache_folder
    from ..settings.table import effects
    from ..tasks.task import make_task

    file = table.file
    ordered = sorted(_CONFIGURATIONS, key=lambda name: name.startswith("eval_") != file.name.startswith("eval_"))
    found = next((path for path in (file.with_name(name) for name in ordered) if path.is_file()), None)
    if found is None:
        raise UserError(f"{file.parent} has no {ordered[0]}")
    effect_of = effects()  # what was for that start alone, such as PER_SAMPLE, may be gone
    settings = {name: value for name, value in read_about_file(found).items() if effect_of.get(name) != "place"}
    words = [f"-output={file.parent}", f"-split={table.about['split']}"]
    words += [] if data_path is None else [f"-data_path={data_path}"]
    config = build_configuration(str(found), settings, words=words).values
    if data_path is not None and config.DATA.DATASET in EMBEDDED:
        raise UserError(f"dataset {config.DATA.DATASET} comes with the package and reads no path; leave it out")
    task = make_task(config)
    if not task.draws_samples:
        raise UserError(f"task {config.TASK} has no images of its samples")
    samples = task.build_dataset(config.DATA.SPLIT, cache_folder(config))
    places = {samples.name(index): index for index in range(len(samples))}
    drawn = {}
    for name in dict.fromkeys(names):
        try:
            if name in places:
                ((drawn[name], _),) = task.evaluation_images(samples, [places[name]])
        except (UserError, OSError):  # it can no longer be read; the others are still worth showing
            continue
    return drawn
