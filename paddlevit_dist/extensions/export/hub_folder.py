"""``export RUN OUT -format=hub``: the folder of a model to upload to Hugging Face, with a card.

The card's YAML follows huggingface.co/docs/hub/model-cards: ``model-index`` has the scores, with the interval of each
as arguments of its metric. Nothing in the folder names files or folders of this computer.
"""

import os
import shlex
from argparse import Namespace
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from ...core.checkpoint.about_schema import ABOUT
from ...core.checkpoint.integrity import DamagedCheckpointError
from ...core.checkpoint.model_record import read_stored_settings
from ...core.checkpoint.published import WEIGHTS_FILE, is_fetched
from ...core.checkpoint.records import find_directory, is_run_checkpoint, read_about_file, read_state
from ...core.checkpoint.weight_files import evaluated_weights
from ...core.launch.tuning import import_paddle
from ...core.registry.extension_points import LIST_GALLERIES
from ...core.registry.lookup import annotation_type
from ...core.registry.manifest import (
    BOX_LABELS,
    CLASS_LABELS,
    KEYPOINT_LABELS,
    MASK_LABELS,
    NO_LABELS,
    SEGMENT_LABELS,
    TAG_LABELS,
)
from ...core.runtime import signals
from ...core.runtime.errors import UserError
from ...core.runtime.files import explain_write_error, unfinished_folder
from ...core.runtime.metrics_file import find_best_evaluation, get_interval, get_values, is_number, recorded_events
from ...core.runtime.printing import one_line
from .descriptions import to_yaml

CARD, IMAGES = "README.md", "images"
_MOST_IMAGES = 8  # of a gallery
_HUB = "hf:"
_ORIGIN = "converted_from"  # a path of this computer
_LIBRARY = "paddlevit_dist"
# The hub's names of what networks do, by what their images are labeled with.
_PIPELINES = {
    CLASS_LABELS: "image-classification",
    TAG_LABELS: "image-classification",
    BOX_LABELS: "object-detection",
    MASK_LABELS: "image-segmentation",
    SEGMENT_LABELS: "image-segmentation",
    KEYPOINT_LABELS: "keypoint-detection",
    NO_LABELS: "image-feature-extraction",
}
# The hub's names of what reads files of one's own, by the dataset, and of scores.
_BUILDERS = {
    "folder": "imagefolder",
    "unlabeled": "imagefolder",
    "table": "csv",
    "keypoint_table": "csv",
    "hub": "parquet",
    "hub_boxes": "parquet",
    "hub_label_maps": "parquet",
    "tar": "webdataset",
}
_METRICS = {"top-1": "accuracy", "mIoU": "mean_iou"}


class PublishedScore(NamedTuple):
    """A score of a card.

    Attributes:
        name: its name in the run's log.
        value: its value.
        interval: its "interval", two ends, and "percent"; empty if it has none.
    """

    name: str
    value: float
    interval: dict[str, Any]


def publish(options: Namespace) -> None:
    """Write the folder that the command's options name; raises a UserError for one that has no effect on it."""
    given: dict[str, Any] = {"model": None, "image_size": None, "in_channels": None, "calibration": None}
    given |= {"precision": "float32", "input": "float", "outputs": "logits"}
    unused = [f"-{name}" for name, default in given.items() if getattr(options, name) != default] + options.settings
    if unused:
        raise UserError(f"export: {unused[0]}: -format=hub writes the trained weights unchanged: remove it")
    import_paddle()
    for line in write_hub_folder(options.weights, options.output, options.part, options.license, options.replace):
        print(one_line(line))


def write_hub_folder(
    source: str, output: str, part: str | None, license_name: str | None, should_replace: bool
) -> list[str]:
    """Write weights, record and card of a run to the folder ``output``, and return lines; the last one uploads it.

    Raises UserError if the settings of the weights are unknown, or files would be replaced or cannot be written.
    """
    from ...core.commands.convert import convert, describe_conversion

    folder = Path(output).expanduser()
    _require_free(folder, should_replace)
    stored = read_stored_settings(source) or {}
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with unfinished_folder(folder) as made:
            weights = made / WEIGHTS_FILE
            converted = convert(source, str(weights), part)
            described = weights.with_name(f"{weights.name}.{ABOUT}")
            about = _select_facts(source, read_about_file(described))
            described.unlink()
            (made / ABOUT).write_text(to_yaml(about), encoding="utf-8")
            scores = [] if part is not None else read_scores(source)
            card = format_card(folder.resolve().name, about, scores, license_name, _find_repository(stored))
            images = _write_images(source, made)
            (made / CARD).write_text(card + images, encoding="utf-8")
            names = [path.relative_to(made) for path in made.rglob("*") if path.is_file()]
            folder.mkdir(exist_ok=True)
            if images:
                (folder / IMAGES).mkdir(exist_ok=True)
            with signals.blocked():
                for name in names:
                    os.replace(made / name, folder / name)
    except OSError as error:
        raise UserError(f"export: {folder} cannot be written: {explain_write_error(error)}") from error
    lines = describe_conversion(converted, str(folder / WEIGHTS_FILE))
    counted = f"{len(scores)} scores" if scores else "no scores: only a run's checkpoint with an evaluation has some"
    lines.append(f"{folder / CARD}: {counted}; complete it, and replace OWNER by your name there")
    if images:
        lines.append(f"{folder / IMAGES}: images of the data, from the report: remove what is private")
    return [*lines, f"hf upload OWNER/{shlex.quote(folder.resolve().name)} {shlex.quote(str(folder))}"]


def _require_free(folder: Path, should_replace: bool) -> None:
    """Raise UserError if the folder cannot be one, or has files that an export writes."""
    if folder.exists() and not folder.is_dir():
        raise UserError(f"export: {folder} is a file: -format=hub writes a folder, choose another OUT")
    existing = [name for name in (WEIGHTS_FILE, ABOUT, CARD) if (folder / name).exists()]
    if existing and not should_replace:
        raise UserError(
            f"export: {folder} has {', '.join(existing)}: choose another OUT, or add -replace, which replaces these "
            "files and keeps others"
        )


def _select_facts(source: str, about: dict[str, Any]) -> dict[str, Any]:
    """Return the record to publish: without the place of the weights, and with modules by their names alone."""
    if not isinstance(about.get("settings"), Mapping):
        raise UserError(
            f"export: the settings of {source} are unknown: -format=hub needs a run, or weights with its about.yaml"
        )
    settings = dict(about["settings"])
    if settings.get("IMPORTS"):
        settings["IMPORTS"] = [os.path.basename(str(name)) for name in settings["IMPORTS"]]
    return {**{name: value for name, value in about.items() if name != _ORIGIN}, "settings": settings}


def _find_repository(settings: Mapping[str, Any]) -> str | None:
    """Return the OWNER/NAME of the data at Hugging Face that a run was trained on; None for any other data."""
    path = str((settings.get("DATA") or {}).get("DATA_PATH") or "")
    return path.removeprefix(_HUB).partition("@")[0] if path.startswith(_HUB) else None


def read_scores(source: str) -> list[PublishedScore]:
    """Read the scores of a run's checkpoint, the one that chose it first; empty for other weights.

    Scores are what the evaluation has intervals of, also unknown ones: all others are counts. Without intervals, it is
    the score that chose the checkpoint.
    """
    if is_fetched(source) or not is_run_checkpoint(weights := evaluated_weights(source)):
        return []
    checkpoint = find_directory(weights).resolve()
    try:
        epoch = read_state(checkpoint)[0]["epoch"]
    except DamagedCheckpointError as error:
        raise UserError(f"export: {error}; give another checkpoint of the run") from error
    event = find_best_evaluation(recorded_events(checkpoint.parent.parent), epoch)
    if event is None or event["epoch"] != epoch:
        return []
    intervals = event.get("interval")
    names = [event["best"], *(intervals if isinstance(intervals, Mapping) else ())]
    values = {name: get_values(event).get(name) for name in names if name != "percent"}
    return [
        PublishedScore(name, value, get_interval(event, name)) for name, value in values.items() if is_number(value)
    ]


def _write_images(source: str, folder: Path) -> str:
    """Write the galleries of a run's report to ``images``, and return them as Markdown; empty without a report.

    The last line of a caption names the sample, by a path for some data, and is omitted.
    """
    list_galleries = LIST_GALLERIES.find()
    if list_galleries is None or is_fetched(source) or not is_run_checkpoint(weights := evaluated_weights(source)):
        return ""
    text, number = "", 0
    for gallery in list_galleries(find_directory(weights).resolve().parent.parent):
        links = []
        for image in gallery["images"][:_MOST_IMAGES]:
            name = f"{IMAGES}/{number}.{image['suffix']}"
            (folder / IMAGES).mkdir(exist_ok=True)
            (folder / name).write_bytes(image["image"])
            links.append(f"![{_cell('; '.join(image['caption'][:-1]))}]({name})")
            number += 1
        text += f"\n## {_cell(gallery['title'])}\n\n{_cell(gallery['note'])}\n\n" + "\n".join(links) + "\n"
    return text


def format_card(
    name: str,
    about: Mapping[str, Any],
    scores: list[PublishedScore],
    license_name: str | None,
    repository: str | None,
) -> str:
    """Format the content of ``README.md``: facts for the hub as YAML, then what readers need.

    ``repository`` is the OWNER/NAME of the data at Hugging Face; None for any other data.
    """
    settings = about["settings"]
    task, data = str(about.get("task", settings.get("TASK"))), settings.get("DATA") or {}
    pipeline = _PIPELINES.get(annotation_type("task", task) or "")
    split = str(data.get("SPLIT") or "val")
    published = (about.get("published_as") or {}).get(split) or {}
    name_of_split = published.get("split", split)  # older runs store only their own name
    source = repository or str(data.get("DATASET"))
    kind = _BUILDERS.get(source, source)
    facts: dict[str, Any] = {
        "library_name": _LIBRARY,
        **({} if pipeline is None else {"pipeline_tag": pipeline}),
        **({} if license_name is None else {"license": license_name}),
        **({} if repository is None else {"datasets": [repository]}),
    }
    if scores:
        dataset = {"name": kind, "type": kind, "config": published.get("configuration"), "split": name_of_split}
        dataset |= {"revision": published.get("revision")}
        dataset |= {"args": {"share": published["share"]} if "share" in published else None}
        result = {
            "task": {"type": pipeline or task},
            "dataset": {field: value for field, value in dataset.items() if value is not None},
            "metrics": [_describe_score(score) for score in scores],
        }
        facts["model-index"] = [{"name": name, "results": [result]}]
    kept = (about.get("data") or {}).get(split) or {}
    samples = f" ({kept['samples']:,} samples)" if isinstance(kept.get("samples"), int) else ""
    rows = "".join(f"| {_cell(score.name)} | {score.value:.6g} | {_format_interval(score)} |\n" for score in scores)
    of_split = f"{published['share']:.2g} of the" if "share" in published else "the"
    table = f"\n## Scores\n\nOf {of_split} split `{name_of_split}` of {_cell(source)}{samples}.\n\n" if scores else ""
    table += f"| score | value | interval |\n|---|---|---|\n{rows}" if scores else ""
    return f"---\n{to_yaml(facts)}---\n\n{_format_text(name, about, task)}{table}"


def _format_text(name: str, about: Mapping[str, Any], task: str) -> str:
    """Format what the model is, and how it is used, in five lines."""
    modules = about["settings"].get("IMPORTS") or []
    own = f"Its network needs {', '.join(map(_cell, modules))}: add `-import=MODULE`.\n\n" if modules else ""
    network = about.get("model")
    return f"""# {_cell(name)}

The network `{network}`, trained for the task `{task}`. `{ABOUT}` has its settings, preprocessing and classes.

## Use

```python
from paddlevit_dist import Predictor

predictor = Predictor("hf:OWNER/{name}")
for row in predictor(["FILE"]):
    print(row)
```

{own}Or `python -m paddlevit_dist predict hf:OWNER/{name} FOLDER`; `-pretrained=hf:OWNER/{name}` trains on from it.
"""


def _describe_score(score: PublishedScore) -> dict[str, Any]:
    interval = {name: list(value) if name == "interval" else value for name, value in score.interval.items()}
    entry = {"type": _METRICS.get(score.name, score.name), "name": score.name, "value": score.value}
    return {**entry, **({"args": interval} if interval else {})}


def _format_interval(score: PublishedScore) -> str:
    if not score.interval:
        return "-"
    low, high = score.interval["interval"]
    return f"{score.interval['percent']:g} %: {low:.6g} to {high:.6g}"


def _cell(text: str) -> str:
    return one_line(str(text)).replace("|", "\\|")
