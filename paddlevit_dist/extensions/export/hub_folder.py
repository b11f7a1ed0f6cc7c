"""``export RUN OUT -format=hub``: the folder of a model to upload to Hugging Face, with a card.

The card's YAML follows huggingface.co/docs/hub/model-cards: ``model-index`` has the scores, with the interval of each
as arguments of its metric. Nothing in the folder names files or folders of this computer. A classifier that timm has,
too, gets timm's ``config.json``, with which timm and transformers open the folder.
"""

import os
import re
import shlex
from argparse import Namespace
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from ...core.checkpoint.about_schema import ABOUT
from ...core.checkpoint.families import ConvertedWeights
from ...core.checkpoint.integrity import DamagedCheckpointError
from ...core.checkpoint.model_record import read_stored_settings
from ...core.checkpoint.network_facts import CONFIG
from ...core.checkpoint.published import WEIGHTS_FILE, is_fetched
from ...core.checkpoint.records import find_directory, is_run_checkpoint, read_about_file, read_state
from ...core.checkpoint.weight_files import evaluated_weights
from ...core.launch.tuning import import_paddle
from ...core.registry.extension_points import LIST_GALLERIES
from ...core.registry.lookup import annotation_type, find_name, find_package
from ...core.registry.manifest import (
    BOX_LABELS,
    CLASS_LABELS,
    KEYPOINT_LABELS,
    MASK_LABELS,
    NO_LABELS,
    SEGMENT_LABELS,
    TAG_LABELS,
)
from ...core.registry.model_sources import find_bridged_input
from ...core.registry.names import REGISTRY
from ...core.runtime import signals
from ...core.runtime.errors import UserError
from ...core.runtime.files import explain_write_error, unfinished_folder
from ...core.runtime.json_format import format_json
from ...core.runtime.metrics_file import find_best_evaluation, get_interval, get_values, is_number, recorded_events
from ...core.runtime.printing import one_line
from .descriptions import format_about, to_yaml

CARD, IMAGES = "README.md", "images"
_MOST_IMAGES = 8  # of a gallery
_HUB = "hf:"
_FETCHED = re.compile(r"/datasets--([^/]+)/snapshots/")
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
    "box_table": "csv",
    "hub": "parquet",
    "hub_boxes": "parquet",
    "hub_label_maps": "parquet",
    "tar": "webdataset",
}
_METRICS = {"top-1": "accuracy", "mIoU": "mean_iou"}
# Of each family whose networks timm has under the same names: whether timm's network gets the size of its images, and
# the settings in MODEL that are arguments of timm's network, in lower case.
_VIT_SETTINGS = frozenset(("PATCH_SIZE", "EMBED_DIM", "DEPTH", "NUM_HEADS", "MLP_RATIO"))
_TIMM_FAMILIES = {
    "VisionTransformer": (True, _VIT_SETTINGS),
    "DeiT": (True, _VIT_SETTINGS),
    "DistilledDeiT": (True, _VIT_SETTINGS),
    "CaiT": (True, _VIT_SETTINGS | {"DEPTH_TOKEN_ONLY"}),
    "SwinTransformer": (
        True,
        frozenset(("PATCH_SIZE", "EMBED_DIM", "DEPTHS", "NUM_HEADS", "WINDOW_SIZE", "MLP_RATIO")),
    ),
    "MlpMixer": (True, frozenset[str]()),
    "ConvNeXt": (False, frozenset(("DEPTHS", "DIMS"))),
    "PyramidVisionTransformer": (False, frozenset[str]()),
    "ResNet": (False, frozenset[str]()),
    "HGNetV2": (False, frozenset[str]()),
}
_NOT_IN_TIMM = ("vit", "pvtv2_")  # networks whose size only settings give; PaddleViT's PVTv2, with another epsilon
_CLASSIFIERS = ("head.fc", "head", "head_dist", "fc", "classifier")  # timm's names of last layers
# Settings in MODEL that do not change the network of trained weights.
_TRAINING_SETTINGS = frozenset(
    "TYPE NAME NUM_CLASSES PRETRAINED PRETRAINED_REQUIRED PRETRAINED_PART MIN_LOADED_FRACTION DROPOUT "
    "ATTENTION_DROPOUT DROPPATH".split()
)


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
            (made / ABOUT).write_text(format_about(about), encoding="utf-8")
            scores = [] if part is not None else read_scores(source)
            described_for_timm = describe_for_timm(about, converted)
            if described_for_timm is not None:
                (made / CONFIG).write_text(format_json(described_for_timm, indent=2), encoding="utf-8")
            card = format_card(
                folder.resolve().name,
                about,
                scores,
                license_name,
                _find_repository(stored),
                is_in_timm=described_for_timm is not None,
            )
            images = _write_images(source, made)
            (made / CARD).write_text(card + images, encoding="utf-8")
            names = [path.relative_to(made) for path in made.rglob("*") if path.is_file()]
            folder.mkdir(exist_ok=True)
            if images:
                (folder / IMAGES).mkdir(exist_ok=True)
            with signals.blocked():
                (folder / CONFIG).unlink(missing_ok=True)  # of another network
                for name in names:
                    os.replace(made / name, folder / name)
    except OSError as error:
        raise UserError(f"export: {folder} cannot be written: {explain_write_error(error)}") from error
    lines = describe_conversion(converted, str(folder / WEIGHTS_FILE))
    counted = f"{len(scores)} scores" if scores else "no scores: only a run's checkpoint with an evaluation has some"
    if described_for_timm is not None:
        lines.append(f"{folder / CONFIG}: the network and its input, for timm and transformers")
    lines.append(f"{folder / CARD}: {counted}; complete it, and replace OWNER by your name there")
    if images:
        lines.append(f"{folder / IMAGES}: images of the data, from the report: remove what is private")
    return [*lines, f"hf upload OWNER/{shlex.quote(folder.resolve().name)} {shlex.quote(str(folder))}"]


def _require_free(folder: Path, should_replace: bool) -> None:
    """Raise UserError if the folder cannot be one, or has files that an export writes."""
    if folder.exists() and not folder.is_dir():
        raise UserError(f"export: {folder} is a file: -format=hub writes a folder, choose another OUT")
    existing = [name for name in (WEIGHTS_FILE, ABOUT, CONFIG, CARD) if (folder / name).exists()]
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
    fetched = _FETCHED.search(path)  # a folder of its library's cache
    if fetched is not None:
        return fetched[1].replace("--", "/", 1)
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


def describe_for_timm(about: Mapping[str, Any], weights: ConvertedWeights) -> dict[str, Any] | None:
    """Describe a classifier as timm's ``config.json`` does; None if timm does not have this network.

    Source: timm/models/_hub.py, ``save_config_for_hf``. transformers' ``TimmWrapper`` reads the same file.

    Args:
        about: the record to publish, with its settings.
        weights: with timm's names; their last layer has the number of classes.
    """
    settings = about["settings"]
    network, data = settings["MODEL"], settings["DATA"]
    label_type = annotation_type("task", str(settings["TASK"]))
    classifiers = [name for name in _CLASSIFIERS if f"{name}.bias" in weights.state]
    if label_type not in (CLASS_LABELS, TAG_LABELS) or not classifiers:
        return None
    changed = {name: value for name, value in network.items() if value and name not in _TRAINING_SETTINGS}
    arguments: dict[str, Any]
    if str(network["NAME"]).startswith("timm:"):
        whole_name = network["NAME"]
        architecture = whole_name.removeprefix("timm:").partition(".")[0]
        has_size = bool((find_bridged_input(whole_name) or {}).get("fixed_input_size"))
        arguments = dict(changed.pop("OPTIONS", {}))
    else:
        architecture = find_name("model", network["NAME"])
        architecture = REGISTRY.aliases.get(architecture, architecture)
        family = REGISTRY.models.get(architecture)  # a class if it is a user's own
        if not isinstance(family, str) or not find_package("model", architecture):
            return None
        has_size, names = _TIMM_FAMILIES.get(family.rpartition(":")[2], (False, None))
        if names is None or architecture == _NOT_IN_TIMM[0] or architecture.startswith(_NOT_IN_TIMM[1]):
            return None
        arguments = {name.lower(): changed.pop(name) for name in names & changed.keys()}
    if changed:
        return None
    size, channels = data["IMAGE_SIZE"], data["IMAGE_CHANNELS"]
    height, width = (size, size) if isinstance(size, int) else size
    if has_size:
        arguments["img_size"] = [height, width]
    if channels != 3:
        arguments["in_chans"] = channels
    number = len(weights.state[f"{classifiers[0]}.bias"])
    split = (about.get("data") or {}).get(str(data.get("SPLIT") or "val")) or {}
    labels = [str(name) for name in split.get("classes") or ()]
    return {
        "architecture": architecture,
        "num_classes": number,
        **({"label_names": labels} if len(labels) == number else {}),
        **({"problem_type": "multi_label_classification"} if label_type == TAG_LABELS else {}),
        **({"model_args": arguments} if arguments else {}),
        "pretrained_cfg": {
            "num_classes": number,
            "input_size": [channels, height, width],
            "fixed_input_size": has_size,
            "interpolation": data["INTERPOLATION"],
            "crop_pct": data["CROP_PCT"],
            "crop_mode": data["CROP_MODE"],
            "mean": list(data["IMAGENET_MEAN"]),
            "std": list(data["IMAGENET_STD"]),
            "classifier": classifiers[0] if len(classifiers) == 1 else classifiers,
        },
    }


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
    is_in_timm: bool = False,
) -> str:
    """Format the content of ``README.md``: facts for the hub as YAML, then what readers need.

    ``repository`` is the OWNER/NAME of the data at Hugging Face; None for any other data. ``is_in_timm``: timm opens
    the folder, too.
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
    return f"---\n{to_yaml(facts)}---\n\n{_format_text(name, about, task, is_in_timm)}{table}"


def _format_text(name: str, about: Mapping[str, Any], task: str, is_in_timm: bool) -> str:
    """Format what the model is, and how it is used."""
    modules = about["settings"].get("IMPORTS") or []
    own = f"Its network needs {', '.join(map(_cell, modules))}: add `-import=MODULE`.\n\n" if modules else ""
    network = about.get("model")
    elsewhere = f'In PyTorch: `timm.create_model("hf-hub:OWNER/{name}", pretrained=True)`, or '
    elsewhere += f'`pipeline("image-classification", "OWNER/{name}")` of transformers.\n\n'
    own += elsewhere if is_in_timm else ""
    return f"""# {_cell(name)}

The network `{network}`, trained for the task `{task}`. `{ABOUT}` has its settings, preprocessing and classes.

## Use

Install `{_LIBRARY}`: `pip install '.[cpu]'` in a clone of it, or `pip install '.[gpu]'` with Paddle for GPUs.

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
