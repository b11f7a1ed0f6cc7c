"""What must hold for any combination of settings, without a reference.

Each check takes a bench and a combination and returns what is wrong, or None.
"""

import csv
import fnmatch
import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np

from paddlevit_dist.core.checkpoint.low_rank import list_layers
from paddlevit_dist.core.checkpoint.output_names import read_class_names

from .averages import check_averages
from .command_checks import check_command, check_export
from .commands import execute, get_last_line, read_printed, read_state, succeed
from .features import TASKS, list_may_be_refused, list_refused
from .runs import Bench
from .scored import are_near, compare_rows, compare_tables, fix_thresholds, read_rows
from .values import Combination, matches

Check = Callable[[Bench, Combination], str | None]

# The largest difference of two runs, as a share of what training changed.
_LIMITS = {"bits": 0.0, "near": 1e-3, "rounding": 5e-3}
_LIMITS_OF_SIGNS = {**_LIMITS, "rounding": 0.15}  # Lion and Muon turn rounding of small gradients into whole steps
_ORDER = list(_LIMITS)


def check_training(bench: Bench, combination: Combination) -> str | None:
    """A run ends well; a combination that the guides exclude is refused in one line, before anything is trained."""
    run = bench.train(combination)
    last = (run.text.strip().splitlines() or [""])[-1][:250]
    if not matches(combination, list_refused(bench.task)):
        is_refused = run.code == 2 and matches(combination, list_may_be_refused(bench.task))
        return None if run.code == 0 or is_refused else f"exit code {run.code}: {last}"
    if run.code != 2 or "Traceback" in run.text or not last.startswith("error: "):
        return f"should be refused: exit code {run.code}: {last}"
    return "refused after it has begun to train" if (run.folder / "checkpoints").exists() else None


def check_evaluation(bench: Bench, combination: Combination) -> str | None:
    """``evaluate`` prints what training printed: of the last weights, of the run, and of weights without averages.

    The last weights are evaluated on another number of processes than in training, and the run's folder means its best
    weights. The tables of samples are the same, too.
    """
    folder = bench.train(combination).folder
    lines, raw = read_printed(folder), read_printed(folder, "evaluation without averaging")
    evaluation = json.loads((folder / "checkpoints/best/evaluation.json").read_text())
    keys = fix_thresholds(combination)
    other, has_rows = 3 - int(combination["processes"]), TASKS[bench.task].models[combination["model"]].has_rows
    parts = {
        "last": ("/checkpoints/last", lines[max(lines)], other),
        "best": ("", lines[evaluation["best"]["epoch"]], 1),
    }
    if raw:
        parts["raw"] = ("/checkpoints/last/model.pdparams", raw[max(raw)], 1)
    wrong = []
    for name, (place, line, processes) in parts.items():
        words = [f"-cfg={folder}/config.yaml", f"-pretrained={folder}{place}", f"-output={folder}/evaluated_{name}"]
        rows = [f"-per_sample={folder}/rows_{name}.csv"] if has_rows else []
        found = succeed("evaluate", *words, *rows, f"-ngpus={processes}", *keys)
        if found != line:
            wrong.append(f"{name}: training printed '{line}', evaluate '{found}'")
    table = folder / "scored_samples.npz"
    if table.exists():
        wrong.append(compare_tables(table, folder / "evaluated_last/eval_scored_samples.npz") or "")
    return "; ".join(filter(None, wrong)) or None


# Of classification: where the images of the validation split are.
_INPUTS = {
    "folder": "folder/val",
    "lists": "lists/images/val",
    "fold": "table/pictures/val",
    "pages": "pages",
    "http": "pages",
    "jpeg": "jpeg",
    "hub": "hub/data",
}


def check_rows(bench: Bench, combination: Combination) -> str | None:
    """The line is the mean of ``-per_sample``, and ``predict`` gives the same rows."""
    if bench.task == "multi_label":
        return _check_label_rows(bench, combination)
    if bench.task != "classification":
        return None
    folder = bench.train(combination).folder
    rows, lines = read_rows(folder / "rows_last.csv"), read_printed(folder)
    top1 = np.mean([100.0 * (row["correct"] == "True") for row in rows.values()])
    loss = np.mean([float(row["loss"]) for row in rows.values()])
    printed = [float(number) for number in re.findall(r"(?:top-1|loss) ([\d.]+)", lines[max(lines)])]
    if not np.allclose([top1, loss], printed, rtol=0, atol=0.006):
        return f"rows give top-1 {top1} and loss {loss}, the line says {lines[max(lines)]}"
    if combination["data"] not in _INPUTS:
        return None
    place = bench.materials.folder / _INPUTS[combination["data"]]
    inputs = sorted([*place.glob("val*.tar"), *place.glob("val*.parquet")]) or [place]
    succeed("predict", folder / "checkpoints/last", *inputs, f"-output={folder}/predicted", "-restart")
    with (folder / "predicted/predictions.csv").open(newline="") as file:
        predicted = {Path(row[0]).stem: row[1:3] for row in list(csv.reader(file))[1:]}
    return compare_rows("predict", rows, predicted)


def _check_label_rows(bench: Bench, combination: Combination) -> str | None:
    folder = bench.train(combination).folder
    last = folder / "checkpoints/last"
    rows, line = read_rows(folder / "rows_last.csv"), (folder / "evaluated_last/log.txt").read_text().splitlines()[-1]
    some = [row["correct"] == "True" for row in rows.values() if row["unknown"].count(";") < 2]
    printed = re.findall(r"exact match ([\d.]+)%", line)
    if printed and abs(100 * np.mean(some) - float(printed[0])) > 0.006:
        return f"rows have {100 * np.mean(some)} % exact matches, the line says {line}"
    images = [path for path in (bench.materials.folder / "tags/images").iterdir() if path.stem in rows]
    if combination["data"] == "hub":
        images = list((bench.materials.folder / "hub_tags/val").glob("*.arrow"))
    succeed("predict", last, *sorted(images), f"-output={folder}/predicted", "-restart", *fix_thresholds(combination))
    with (folder / "predicted/predictions.csv").open(newline="") as file:
        for row in csv.DictReader(file):
            own = rows[Path(row["input"]).stem]
            names = [name for name in row if name not in ("input", "labels")]
            worst = max(abs(float(row[name]) - float(own[f"probability {name}"])) for name in names)
            if worst > 2e-4 or (row["labels"] != own["prediction"] and not worst):
                return f"predict differs for {row['input']} by {worst:.1e}: {row['labels']}, not {own['prediction']}"
    return None


_NAMES_IN_FILES = {"mre": "mre_mm"}
# Task -> what scores the files of its predictions, and where they are.
_SCORED = {
    "detection": ("detections", "results.json"),
    "segmentation": ("masks", "masks"),
    "panoptic": ("panoptic", ""),
    "scenes": ("scenes", ""),
    "instances": ("scenes", ""),
    "landmarks": ("landmarks", ""),
}
# Data with label maps -> their folder, and how they are read.
_LABEL_MAPS = {
    "label_maps": ("label_maps/labels/val", ""),
    "background": ("label_maps/labels/val", "-reduce_zero_label"),
    # Weights that have hardly learned may predict none of the classes that the maps have.
    "ade20k": ("ade20k/annotations/validation", "-reduce_zero_label -classes={data}/ade20k/numbers.txt"),
}


def check_files(bench: Bench, combination: Combination) -> str | None:
    """Predictions that an evaluation writes give the printed score when they are scored from their files."""
    if bench.task not in _SCORED or (bench.task == "segmentation" and combination["data"] not in _LABEL_MAPS):
        return None
    kind, place = _SCORED[bench.task]
    folder = bench.train(combination).folder
    out = folder / "written"
    shutil.rmtree(out, ignore_errors=True)
    words = [f"-cfg={folder}/config.yaml", f"-pretrained={folder}/checkpoints/last", f"-output={out}", "-ngpus=1"]
    line = succeed("evaluate", *words, "SAVE_PREDICTIONS", "True")
    truth = [f"-cfg={folder}/config.yaml"]
    if bench.task == "segmentation":
        maps, option = _LABEL_MAPS[combination["data"]]
        truth = [str(bench.materials.folder / maps), *option.format(data=bench.materials.folder).split()]
    scoring = execute("evaluate", kind, truth[0], out / "predictions" / place, *truth[1:], "-json")
    assert scoring.code == 0, get_last_line(scoring)
    scores = json.loads(scoring.out)["scores"]
    printed = dict(re.findall(r"(?<!mask )\b(AP\w*|mIoU|mre|PQ) ([\d.]+)", line))
    found = {name: scores.get(_NAMES_IN_FILES.get(name, name)) for name in printed}
    compared = {name: abs(float(printed[name]) - value) for name, value in found.items() if value is not None}
    is_equal = compared and max(compared.values()) < 2e-4  # positions in files have a limited number of digits
    return None if is_equal else f"evaluate printed '{line}', its files give {found}"


def check_resume(bench: Bench, combination: Combination) -> str | None:
    """An interrupted and resumed run ends bit-equal: weights, averages, statistics, optimizer and printed lines."""
    other = bench.train_interrupted(combination)
    if other.code:
        return f"resumed: exit code {other.code}: {other.text.strip()[-250:]}"
    folder = bench.train(combination).folder
    first, second = (read_state(place / "checkpoints/last", with_optimizer=True) for place in (folder, other.folder))
    names = first.keys() | second.keys()
    wrong = [name for name in sorted(names) if _to_bytes(first, name) != _to_bytes(second, name)]
    lines = read_printed(folder)
    others = read_printed(other.folder)  # a run that is stopped evaluates, also where no evaluation is due
    wrong += [f"line of epoch {epoch}" for epoch, line in lines.items() if others.get(epoch, line) != line]
    best, other_best = (
        json.loads((place / "checkpoints/best/evaluation.json").read_text())["best"] for place in (folder, other.folder)
    )
    wrong += [f"best: {best}, resumed: {other_best}"] if best != other_best else []
    return f"{len(wrong)} of {len(names)} arrays and lines differ, such as {wrong[:3]}" if wrong else None


def _to_bytes(state: dict[str, np.ndarray], name: str) -> bytes | None:
    return state[name].tobytes() if name in state else None


def check_twin(bench: Bench, combination: Combination) -> str | None:
    """A run without the settings that must not matter ends with the same weights, averages and statistics."""
    twin, agreement = dict(combination), "bits"
    for name in _list_promised(bench, combination):
        value = bench.features[name][combination[name]]
        twin[name] = value.twin
        agreement = max(agreement, value.agreement, key=_ORDER.index)
    if twin == combination:
        return None
    run = bench.train(twin)
    if run.code:
        return f"its twin {bench.list_changes(twin)} ends with exit code {run.code}"
    places = (bench.get_checkpoint(combination), bench.get_checkpoint(twin))
    first, second = (read_state(place) for place in places)
    if first.keys() != second.keys():
        return f"its twin has other arrays: {sorted(first.keys() ^ second.keys())[:3]}"
    signs = combination["optimizer"] in ("Lion", "Muon")
    limit = (_LIMITS_OF_SIGNS if signs else _LIMITS)[agreement]
    wrong = _find_differences(first, second, read_state(bench.get_base(combination["model"])), limit)
    return f"differs from its twin ({agreement}) by this share of what training changed: {wrong}" if wrong else None


def _list_promised(bench: Bench, combination: Combination) -> list[str]:
    """List the features whose value has a twin that the guides promise to be equal for this combination."""
    model = TASKS[bench.task].models[combination["model"]]
    draws = model.draws or combination.get("mix", "none") != "none" or combination.get("dropout", "none") != "none"
    draws = draws or combination.get("augment") == "rand"  # the noise of erased boxes
    is_split = model.has_batch_norm and (combination["batch_norm"] == "local" or combination["accumulation"] != "1")
    if bench.task in ("classification", "multi_label", "self_distillation") and combination["batch_norm"] == "default":
        is_split = model.has_batch_norm
    unpromised = {
        "processes": draws or is_split,
        "accumulation": draws or model.has_batch_norm,
        "compile": draws,
        "exchange": model.draws and combination["exchange"] == "1",
    }
    twins = [name for name, value in combination.items() if bench.features[name][value].twin]
    return [name for name in twins if not unpromised.get(name)]


def _find_differences(first: dict, second: dict, start: dict, limit: float) -> dict[str, str]:
    """Compare two states by groups of arrays: model or average, weights or statistics; return those above the limit."""
    sums: dict[str, list[float]] = {}
    examples = {}
    for key, value in first.items():
        group = _get_group(key)
        begin = start.get("model/" + key.split("/", 1)[1])
        moved = second[key].astype(np.float64) - (0.0 if begin is None or begin.shape != value.shape else begin)
        difference = value.astype(np.float64) - second[key]
        squares = sums.setdefault(group, [0.0, 1e-30])
        squares[0] += float(np.square(difference).sum())
        squares[1] += float(np.square(moved).sum())
        if difference.any():
            examples[group] = key
    shares = {group: (one / all_changes) ** 0.5 for group, (one, all_changes) in sums.items()}
    return {group: f"{share:.1e} ({examples[group]})" for group, share in shares.items() if share > limit}


def _get_group(key: str) -> str:
    is_statistic = key.endswith(("._mean", "._variance"))
    return f"{key.split('/')[0]} {'statistics' if is_statistic else 'weights'}"


_CONSTANTS = ("anchors.points",)  # ends of the names of buffers that no training changes
_ADAPTED = {"rank2": {"qkv", "proj", "mlp"}, "mlp": {"mlp"}}  # parts of layers' names, by TRAIN.LORA.TARGETS


def check_frozen(bench: Bench, combination: Combination) -> str | None:
    """What FREEZE names keeps all values and statistics, and everything else moves; LoRA adapts what it is told."""
    adapted = _ADAPTED.get(combination.get("lora", "none"))
    if adapted is not None:
        first = [name for name in read_state(bench.get_base(combination["model"])) if "blocks." in name]
        adapted = {part for part in adapted if any(part in name for name in first)}
        layers = list_layers(name.split("/", 1)[1] for name in read_state(bench.get_checkpoint(combination)))
        found = {part for part in _ADAPTED["rank2"] if any(part in name for name in layers)}
        return None if found == adapted else f"LoRA adapts {layers[:3]} ...: {found} instead of {adapted}"
    if combination["freeze"] == "none":
        return None
    checkpoint = bench.get_checkpoint(combination)
    start, end = read_state(bench.get_base(combination["model"])), read_state(checkpoint)
    # SGD's steps from small gradients can be lost in rounding, and PointGroup's deepest levels have one voxel a scene.
    moves = combination["optimizer"] not in ("SGD", "damped") and combination["model"] != "instances"
    names = [set(read_class_names(str(path))[0] or ()) for path in (bench.get_base(combination["model"]), checkpoint)]
    wrong = []
    for key, value in end.items():
        name = key.split("/", 1)[1]
        begin = start.get(f"model_ema/{name}", start.get(f"model/{name}"))  # what a run starts from
        if begin is None or begin.shape != value.shape:  # of another input or number of classes: drawn anew
            continue
        is_frozen = fnmatch.fnmatch(name, "*.0.*")
        if names[0] != names[1] and value.ndim <= 2 and len(names[1]) in value.shape:  # has rows of new classes
            continue
        # Classes are found by name: data with another order of them have the same values in other places.
        if is_frozen and not np.array_equal(np.sort(begin, axis=None), np.sort(value, axis=None)):
            wrong.append(f"{key} is frozen and changed")
        is_constant = is_frozen or name.endswith(_CONSTANTS)
        is_constant |= bench.task == "masked_autoencoder" and name == "pos_embed"  # the fixed table
        is_constant |= name.startswith("denoising_") and combination.get("queries") == "plain"  # nothing uses it
        is_constant |= name.endswith("last_layer.weight_g") and combination["last_layer"] != "learned"  # norms of 1
        if moves and not is_constant and begin.any() and np.array_equal(begin, value):
            wrong.append(f"{key} is not frozen and never changed")
    return f"{len(wrong)} arrays: {wrong[:3]}" if wrong else None


def check_zero_rate(bench: Bench, combination: Combination) -> str | None:
    """An epoch from the run's weights without a learning rate changes no score; batch norm's statistics are fixed."""
    folder, other = bench.train(combination).folder, bench.folder / "zero"
    shutil.rmtree(other, ignore_errors=True)
    words = bench.make_train_words(combination | {"schedule": "cosine"}, other)
    start = f"-pretrained={folder}/checkpoints/last"
    if bench.task == "instances":  # in its first epochs PointGroup has no instances
        words += ["POINTS.INSTANCES.PREPARE_EPOCHS", "0"]
    still = "TRAIN.BASE_LR 1e-30 TRAIN.END_LR 0 TRAIN.WARMUP_STEPS 0 TRAIN.BATCH_NORM_MOMENTUM 1.0".split()
    if not TASKS[bench.task].models[combination["model"]].has_batch_norm:
        still = still[:-2]
    succeed(*words, start, "-epochs=1", *still)
    before, lines = read_printed(folder), read_printed(other)
    last, after = before[max(before)], lines[min(lines)]  # NUM_EPOCHS of a setting wins over -epochs
    is_same = are_near(after, last, 2e-4)  # the last printed digit
    return None if is_same else f"'{after}' after an epoch without a rate, '{last}' before"


CHECKS: dict[str, Check] = {  # in this order: some read files that an earlier one wrote
    "training": check_training,
    "evaluation": check_evaluation,
    "rows": check_rows,
    "files": check_files,
    "resume": check_resume,
    "twin": check_twin,
    "frozen": check_frozen,
    "zero_rate": check_zero_rate,
    "averages": check_averages,
    "export": check_export,
    "command": check_command,
}
NEEDS = {"rows": ("evaluation",), "export": ("evaluation",), "command": ("evaluation",)}


def check(name: str, bench: Bench, combination: Combination) -> str | None:
    """Run one check; a command that fails, hangs or leaves a process behind is a finding, too."""
    try:
        return CHECKS[name](bench, combination)
    except (AssertionError, OSError, KeyError, ValueError) as error:
        return f"{type(error).__name__}: {error}"[:400]
