"""What must hold for other commands on a run: exports, reports, conversions, comparisons, searches, probes."""

import importlib.util
import json
import re
import shutil

from ..networks.exported_detectors import MISSING
from .commands import LIMIT_SECONDS, execute, get_last_line, read_printed, succeed
from .features import TASKS, list_refused
from .runs import Bench
from .scored import are_near, compare_rows, fix_thresholds, list_numbers, read_rows
from .values import Combination, matches

# Keys with which weights and an exported file are scored alike.
_PROTOCOLS = {
    "detection": "DETECTION.EVAL_BATCHING one_size DETECTION.EXPORT_SIZE [48,48]",
    "segmentation": "SEGMENTATION.PROTOCOL slide SEGMENTATION.CROP [32,32] SEGMENTATION.STRIDE None",
}
_OF_IMAGES = ("classification", "multi_label", "detection", "segmentation", "panoptic")


def list_imports(bench: Bench, combination: Combination) -> list[str]:
    """List the options that import a user's modules, which commands that start from weights need, too."""
    return [word for word in bench.make_words(combination) if word.startswith("-import=")]


def has_table(bench: Bench, combination: Combination) -> bool:
    """Whether an evaluation writes a table of samples, which other commands read."""
    return combination["interval"] != "off" and TASKS[bench.task].models[combination["model"]].has_rows


def check_export(bench: Bench, combination: Combination) -> str | None:
    """The exported file scores as the checkpoint does, and for classes predicts the same; others are refused."""
    folder, imports = bench.train(combination).folder, list_imports(bench, combination)
    form, suffix = ("paddle", "") if combination["workers"] == "1" or MISSING else ("onnx", ".onnx")
    keys = [*_PROTOCOLS.get(bench.task, "").split(), *fix_thresholds(combination)]
    words = ["export", folder / "checkpoints/last", folder / "exported/model", f"-format={form}", *imports, *keys]
    if bench.task in _OF_IMAGES and combination["clip"] != "none":
        words.insert(4, "-input=uint8")
    if combination.get("views", "none") != "none":
        ended = execute(*words)
        if ended.code != 2:
            return f"an export of several views should be refused: exit code {ended.code}: {get_last_line(ended)}"
        words += "DATA.TEST_VIEWS [] DATA.TEST_SCALES [1.0]".split()
    if not TASKS[bench.task].models[combination["model"]].exports:
        ended = execute(*words)
        return None if ended.code == 2 else f"export should be refused: exit code {ended.code}: {get_last_line(ended)}"
    succeed(*words)
    config = [f"-cfg={folder}/config.yaml", "-ngpus=1", *keys]
    rows = [f"-per_sample={folder}/rows_export.csv"] if bench.task == "classification" else []
    file = folder / f"exported/model{suffix}"
    if suffix and combination["runtime"] == "openvino" and importlib.util.find_spec("openvino"):
        config.append("-runtime=openvino")
        form = "onnx, OpenVINO"
    found = succeed("evaluate", file, *config, "-pretrained=none", f"-output={folder}/evaluated_export", *rows)
    if keys:
        weights = f"-pretrained={folder}/checkpoints/last"
        of_weights = [word for word in config if not word.startswith("-runtime=")]
        expected = succeed("evaluate", *of_weights, weights, f"-output={folder}/evaluated_alike")
    else:
        lines = read_printed(folder)
        expected = lines[max(lines)]
    if TASKS[bench.task].models[combination["model"]].exports_coarsely:
        return None
    if not are_near(found, expected, 2e-3 if keys else 2e-4):
        return f"exported ({form}): '{found}' instead of '{expected}'"
    if bench.task != "classification":
        return None
    predicted = {
        name: [row["prediction"], row["confidence"]] for name, row in read_rows(folder / "rows_export.csv").items()
    }
    return compare_rows(f"the export ({form})", read_rows(folder / "rows_last.csv"), predicted)


def check_command(bench: Bench, combination: Combination) -> str | None:
    """Run the command of the combination, if it has one."""
    name = combination["command"]
    return None if name == "none" else _COMMANDS[name](bench, combination)


def _check_report(bench: Bench, combination: Combination) -> str | None:
    folder = bench.train(combination).folder
    succeed("report", folder, f"-output={folder}/told.html")
    lines = read_printed(folder)
    line = lines[max(lines)]
    page, score = (folder / "told.html").read_text(encoding="utf-8"), list_numbers(line)[0]
    name = re.escape(re.split(r" -?[\d.]+", line, maxsplit=1)[0])  # a whole number is looked for next to its name
    shown = map(float, re.findall(r"\d+\.\d+", page) + re.findall(rf"\b{name} (\d+)(?!\.?\d)", page))
    decimals = len(re.search(r"\d+\.(\d+)", line)[1])  # the page may have more digits than the line
    is_told = score == 0.0 or any(abs(number - score) < 0.6 * 10.0**-decimals for number in shown)
    return None if is_told else f"the report does not have the score {score}"


def _check_convert(bench: Bench, combination: Combination) -> str | None:
    """Converted weights score as the checkpoint does, also those of LoRA, which are merged with their base."""
    folder = bench.train(combination).folder
    file = folder / f"converted.{'pdparams' if combination['clip'] == 'none' else 'safetensors'}"
    ended = execute("convert", folder / "checkpoints/last", file)
    if bench.task in ("masked_autoencoder", "self_distillation"):  # a converted backbone lacks what evaluations need
        return None if ended.code == 0 else f"convert: exit code {ended.code}: {get_last_line(ended)}"
    assert ended.code == 0, f"convert: exit code {ended.code}: {get_last_line(ended)}"
    lines = read_printed(folder)
    words = [f"-cfg={folder}/config.yaml", f"-pretrained={file}", f"-output={folder}/evaluated_file", "-ngpus=1"]
    found = succeed("evaluate", *words)
    return None if found == lines[max(lines)] else f"converted: '{found}' instead of '{lines[max(lines)]}'"


def _check_selftest(bench: Bench, combination: Combination) -> str | None:
    combination = combination | {"processes": "2"}
    if matches(combination, list_refused(bench.task)):
        return None
    words = bench.make_train_words(combination, bench.folder / "selftest")
    ended = execute(*words, "-selftest")
    return None if ended.code == 0 else f"-selftest: exit code {ended.code}: {get_last_line(ended)}"


def _check_compare(bench: Bench, combination: Combination) -> str | None:
    """A run does not differ from an evaluation of its last weights on another number of processes."""
    folder = bench.train(combination).folder
    words = ["compare", folder, folder / "evaluated_last", *list_imports(bench, combination)]
    ended = execute(*words, "-json")
    if not has_table(bench, combination):
        return None if ended.code == 2 else f"compare without a table: exit code {ended.code}"
    assert ended.code == 0, f"compare: exit code {ended.code}: {get_last_line(ended)}"
    (found,) = json.loads(ended.out)["comparisons"]
    if found["difference"]["value"] or any(found.get(kind) for kind in ("fixed", "broken")):
        return f"compare: a run differs from its own weights: {str(found)[:200]}"
    return None


def _check_search(bench: Bench, combination: Combination) -> str | None:
    """Two trials with values of a key that must not matter print what the run printed."""
    folder = bench.train(combination).folder
    place = folder / "search"
    words = bench.make_train_words(combination, place)[1:]
    ended = execute("search", *words, "WATCHDOG_SECONDS=250|300", "-trials=2", limit_seconds=3 * LIMIT_SECONDS)
    if not has_table(bench, combination):
        return None if ended.code == 2 else f"search without tables: exit code {ended.code}"
    assert ended.code == 0, f"search: exit code {ended.code}: {get_last_line(ended)}"
    expected = read_printed(folder)
    trials = {log.parent.name: read_printed(log.parent) for log in place.glob("*/log.txt")}
    wrong = [name for name, lines in trials.items() if lines != expected]
    return f"trials {wrong} of {sorted(trials)} differ from the run" if wrong or len(trials) != 2 else None


def _check_probe(bench: Bench, combination: Combination) -> str | None:
    """A linear probe of the run's weights is scored by ``evaluate`` on two processes as in its training."""
    folder = bench.train(combination).folder
    shutil.rmtree(folder / "probe", ignore_errors=True)
    words = [f"-cfg={folder}/config.yaml", "TASK", "linear_probe", "PROBE.LEARNING_RATES", "[0.01,0.1]"]
    # A probe trains no layer of the network: its training refuses what is for numbered blocks.
    words += ["TRAIN.LORA.RANK", "0", "TRAIN.RECOMPUTE", "False", "TRAIN.LAYER_DECAY", "None"]
    if combination["optimizer"] == "Muon":
        words += ["TRAIN.OPTIMIZER.NAME", "AdamW"]
    weights = f"-pretrained={folder}/checkpoints/last"
    ended = execute("train", *words, weights, f"-output={folder}/probe", "-epochs=2")
    if ended.code:
        return f"linear probe: exit code {ended.code}: {get_last_line(ended)}"
    lines = read_printed(folder / "probe")
    found = succeed(
        "evaluate",
        f"-cfg={folder}/probe/config.yaml",
        f"-pretrained={folder}/probe/checkpoints/last",
        f"-output={folder}/evaluated_probe",
        "-ngpus=2",
    )
    return None if found == lines[max(lines)] else f"probe: '{found}' instead of '{lines[max(lines)]}'"


def _check_neighbors(bench: Bench, combination: Combination) -> str | None:
    """Nearest neighbors by the features of the run's weights vote alike on one process and on two."""
    folder = bench.train(combination).folder
    words = [f"-cfg={folder}/config.yaml", "TASK", "knn_probe", "PROBE.KNN_K", "[5,3]"]
    words += [f"-pretrained={folder}/checkpoints/last", f"-output={folder}/neighbors"]
    one, two = (succeed("evaluate", *words, f"-ngpus={number}") for number in (1, 2))
    return None if one == two else f"nearest neighbors: '{one}' on one process, '{two}' on two"


def _check_groups(bench: Bench, combination: Combination) -> str | None:
    """Intervals over groups leave the scores as they are, and are the same on two processes."""
    if not has_table(bench, combination):
        return None
    folder = bench.train(combination).folder
    words = [f"-cfg={folder}/config.yaml", f"-pretrained={folder}/checkpoints/last", "-group=tens"]
    one, two = (succeed("evaluate", *words, f"-output={folder}/groups{n}", f"-ngpus={n}") for n in (1, 2))
    lines = read_printed(folder)
    if one != two or not are_near(one, lines[max(lines)], 0.0):
        return f"groups: '{one}' on one process, '{two}' on two, '{lines[max(lines)]}' without"
    return None


_COMMANDS = {
    "report": _check_report,
    "convert": _check_convert,
    "selftest": _check_selftest,
    "compare": _check_compare,
    "search": _check_search,
    "probe": _check_probe,
    "neighbors": _check_neighbors,
    "groups": _check_groups,
}
