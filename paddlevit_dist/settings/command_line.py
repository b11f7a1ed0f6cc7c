"""The command line: one table of flags, which defines both what is read and what ``-h`` prints."""

import difflib
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from ..extension import Flag, find_flags
from ..runtime.environment import program, versions
from ..runtime.errors import UserError
from ..runtime.text_files import parse_yaml
from . import recipes
from .key import COMMAND_LINE, KeySetting, show
from .table import keys

_FLAGS = (
    Flag("cfg", "FILE", None, "run", "YAML file, or the name of a recipe"),
    Flag("import", "MODULE", "IMPORTS", "run", "your module or file, imported in every process"),
    Flag("eval", None, "EVAL", "run"),
    Flag("output", "FOLDER", "SAVE", "run", "output folder (default: a new one in ./output)"),
    Flag("dataset", "NAME", "DATA.DATASET", "data", "registered name; else guessed from -data_path"),
    Flag("data_path", "PATH", "DATA.DATA_PATH", "data", "folder or file of the dataset"),
    Flag("split", "SPLIT", "DATA.SPLIT", "data", "split to evaluate, or to predict if unlabeled"),
    Flag("group", "FILE", "EVALUATION.GROUP", "data", "table of sample,group to resample as groups"),
    Flag("max_detections", "N", "DETECTION.MAX_DETECTIONS", "data", "per image and category; default 100"),
    Flag("image_size", "PIXELS", "DATA.IMAGE_SIZE", "data"),
    Flag("batch_size", "N", "DATA.BATCH_SIZE", "data", "images per device and step"),
    Flag("batch_size_eval", "N", "DATA.BATCH_SIZE_EVAL", "data", "images per device in evaluation"),
    Flag("num_workers", "N", "DATA.NUM_WORKERS", "data", "loader processes per device"),
    Flag("num_classes", "N", "MODEL.NUM_CLASSES", "model", "classes; default: as in the dataset"),
    Flag("pretrained", "PATH", "MODEL.PRETRAINED", "model", "weights: file, run folder, URL or name"),
    Flag("resume", "PATH", "MODEL.RESUME", "model", "run or checkpoint; auto: the latest, if any"),
    Flag("allow_changes", None, "ALLOW_CHANGES", "model", "continue despite changed settings or files"),
    Flag("epochs", "N", "TRAIN.NUM_EPOCHS", "training"),
    Flag("stop_after_epoch", "N", "TRAIN.STOP_AFTER_EPOCH", "training", "stop early, to resume later; same schedule"),
    Flag("stop_after_seconds", "N", "STOP_AFTER_SECONDS", "training", "save and stop after N s, with exit code 75"),
    Flag("last_epoch", "N", "TRAIN.LAST_EPOCH", "training"),
    Flag("accum_iter", "N", "TRAIN.ACCUM_ITER", "training"),
    Flag("amp", None, "AMP", "training", "mixed precision, on GPUs"),
    Flag("recompute", None, "TRAIN.RECOMPUTE", "training", "less memory, slower backward pass"),
    Flag("log_to", "NAMES", "LOG_TO", "training", "loggers such as tensorboard, or your callbacks"),
    Flag("ngpus", "N", "NGPUS", "machine", "devices, or processes on a CPU; -1: all visible"),
    Flag("device", "KIND", "DEVICE", "machine", "gpu, cpu, npu, ...; auto: an accelerator if any"),
    Flag("seed", "N", "SEED", "machine"),
    Flag("show_config", None, None, "help", "print all values and the source of each"),
    Flag("h", None, None, "help", "-h keys: keys of -cfg's task; -h all: all keys"),
    Flag("version", None, None, "help", "of this package, Paddle and Python"),
    *find_flags(),
)
_GROUPS = list(dict.fromkeys(flag.group for flag in _FLAGS))
FLAGS = {flag.name: flag for flag in sorted(_FLAGS, key=lambda flag: _GROUPS.index(flag.group))}

# Names in other tools -> our flags and keys.
OTHER_NAMES = {
    **dict.fromkeys(("config", "config_file", "c"), "cfg"),
    **dict.fromkeys(("data", "data_dir", "data_root", "dataset_path"), "data_path"),
    **dict.fromkeys(("output_dir", "out", "save_dir", "work_dir", "log_dir"), "output"),
    **dict.fromkeys(("b", "bs", "batch"), "batch_size"),
    **dict.fromkeys(("j", "workers"), "num_workers"),
    **dict.fromkeys(("img_size", "imgsz", "input_size"), "image_size"),
    **dict.fromkeys(("nb_classes", "classes"), "num_classes"),
    **dict.fromkeys(("checkpoint", "weights", "finetune", "initial_checkpoint"), "pretrained"),
    **dict.fromkeys(("gpus", "nproc_per_node", "devices", "num_gpus"), "ngpus"),
    **dict.fromkeys(("epoch", "num_epochs", "max_epochs"), "epochs"),
    **dict.fromkeys(("evaluate", "test", "val"), "eval"),
    **dict.fromkeys(("lr", "lr0", "learning_rate", "base_lr"), "TRAIN.BASE_LR"),
    **dict.fromkeys(("wd", "weight_decay"), "TRAIN.WEIGHT_DECAY"),
    **dict.fromkeys(("opt", "optimizer"), "TRAIN.OPTIMIZER.NAME"),
    **dict.fromkeys(("model", "arch", "a"), "MODEL.NAME"),
    **dict.fromkeys(("warmup_epochs", "warmup"), "TRAIN.WARMUP_EPOCHS"),
    **dict.fromkeys(("clip_grad", "grad_clip"), "TRAIN.GRAD_CLIP"),
    **dict.fromkeys(("patience", "early_stopping", "early_stopping_patience"), "TRAIN.PATIENCE"),
    "min_delta": "TRAIN.MIN_IMPROVEMENT",
    **dict.fromkeys(("num_seeds", "n_seeds"), "seeds"),
    "smoothing": "TRAIN.SMOOTHING",
    "mixup": "TRAIN.MIXUP_ALPHA",
    "cutmix": "TRAIN.CUTMIX_ALPHA",
    "drop_path": "MODEL.DROPPATH",
    **dict.fromkeys(("max_det", "max_dets", "maxdets"), "max_detections"),
    "task": "TASK",
}


@dataclass
class CommandLine:
    """The parsed command line; in ``settings`` later ones win; ``argv`` is the whole command line."""

    cfg: str | None = None
    show: bool = False
    settings: list[KeySetting] = field(default_factory=list)
    notices: list[str] = field(default_factory=list)
    argv: list[str] = field(default_factory=list)


def parse(argv: Sequence[str]) -> CommandLine:
    """Read flags (``-flag=value``, ``-flag value``, ``--flag``) and overrides (``KEY VALUE``, ``KEY=VALUE``).

    Raises:
        UserError: a flag is unknown, lacks its value or has an extra one; an override is incomplete.
        SystemExit: the version was requested and is printed.
    """
    if {"-version", "--version"} & set(argv):
        print(versions())
        raise SystemExit(0)
    flags, overrides = read(argv)
    command = CommandLine(show="show_config" in flags, argv=list(argv))
    for name, values in flags.items():
        flag = FLAGS[name]
        if name == "import":  # each adds to the others
            values = [",".join(values)]
        if len(values) > 1:
            last = f": the last one, {show(values[-1])}, is used" if flag.argument else ""
            command.notices.append(f"-{name} is given {len(values)} times{last}")
        if flag.key:
            value = _type(flag.key, values[-1]) if flag.argument else True
            command.settings.append(KeySetting(flag.key, value, COMMAND_LINE, f"-{name}"))
    if "cfg" in flags:
        command.cfg = flags["cfg"][-1]
    named = {setting.name for setting in command.settings}
    if "batch_size" in flags and "DATA.BATCH_SIZE_EVAL" not in named:
        command.settings.append(
            KeySetting("DATA.BATCH_SIZE_EVAL", flags["batch_size"][-1], COMMAND_LINE, "-batch_size")
        )
    for name, value in overrides:
        if name in named:
            command.notices.append(f"{name} is given more than once: the last override, {show(value)}, is used")
        named.add(name)
        command.settings.append(KeySetting(name, value, COMMAND_LINE, COMMAND_LINE))
    return command


def read(argv: Sequence[str]) -> tuple[dict[str, list[str]], list[tuple[str, Any]]]:
    """Parse into flag name -> its values in order, and (key, value) of each override."""
    flags: dict[str, list[str]] = {}
    overrides: list[tuple[str, Any]] = []
    words = list(argv)
    while words:
        word = words.pop(0)
        if _is_flag(word):
            name, equals, value = word[2 if word.startswith("--") else 1 :].partition("=")
            name = name.replace("-", "_")
            flag = FLAGS.get(name)
            if flag is None:
                raise UserError(f"{word.partition('=')[0]} is not a known flag: {_closest_flag(name)}")
            if flag.argument is None:
                if equals:
                    raise UserError(f"-{name} takes no value: write -{name} alone")
            elif not equals:
                if not words or _is_flag(words[0]):
                    raise UserError(f"-{name} needs a value: -{name}={flag.argument}")
                value = words.pop(0)
            if value == "=":
                raise UserError(
                    f"-{name}: no spaces are allowed around '=': write -{name}={words[0] if words else 'VALUE'}"
                )
            if name == "output" and value.endswith((".yaml", ".yml")):
                raise UserError(f"-output={value} must be a folder: did you mean '-cfg={value}'?")
            if name == "cfg" and not value:
                raise UserError(
                    "-cfg needs a value: a YAML file or the name of a recipe; "
                    f"'{program('inspect recipes')}' lists them"
                )
            if name == "import" and not value.strip():
                raise UserError("-import needs a value: a module, my_project.things, or a file, my_things.py")
            flags.setdefault(name, []).append(value)
        else:
            key, equals, value = word.partition("=")
            if not equals:
                if not words or _is_flag(words[0]):
                    if key in keys():
                        raise UserError(f"command line: {key} needs a value: write {key}=VALUE")
                    raise UserError(
                        f"command line: {show(key)} is neither a flag nor a KEY with its VALUE{_guess(key)}"
                    )
                value = words.pop(0)
                if value == "=":
                    raise UserError(
                        f"{key}: no spaces are allowed around '=': write {key}={words[0] if words else 'VALUE'}"
                    )
            overrides.append((key, _type(key, value)))
    return flags, overrides


def remove_keys(argv: Sequence[str], names: Sequence[str]) -> list[str]:
    """Return the words of a parsed command line without the flags and overrides of these keys."""
    remaining: list[str] = []
    words = list(argv)
    while words:
        word = words.pop(0)
        name = word.partition("=")[0]
        flag = FLAGS[name.lstrip("-").replace("-", "_")] if _is_flag(word) else None
        setting = [word, *([words.pop(0)] if takes_next_word(word) else [])]
        if (name if flag is None else flag.key) not in names:
            remaining += setting
    return remaining


def describe_flag(flag: Flag) -> str:
    """Return what the flag does, in one line."""
    return flag.meaning or keys()[flag.key or ""].meaning


def takes_next_word(word: str) -> bool:
    """Return whether a flag or a key takes the next word as its value."""
    if not _is_flag(word):
        return "=" not in word
    flag = FLAGS.get(word.lstrip("-").replace("-", "_"))  # none with = and its value
    return flag is not None and flag.argument is not None


def _is_flag(word: str) -> bool:
    if not word.startswith("-"):
        return False
    try:
        float(word)
    except ValueError:
        return True
    return False


def _type(name: str, value: str) -> Any:
    """Return a text or number unchanged, for its key to parse; parse any other value (true, a list) as YAML."""
    key = keys().get(name)
    if key and key.kind == "path" and key.optional and not value.strip():
        raise UserError(f"command line: {name} is empty: is a shell variable not set? Remove {name}, or set it to None")
    if key and key.kind == "path" and value == "~":  # the home folder on a command line, None in a file
        return os.path.expanduser(value)
    if key and key.kind not in ("bool", "switch"):
        return value
    try:
        return parse_yaml(value)
    except ValueError:
        return value


def spell_here(name: str, value: str = "") -> str:
    """Return how to write the flag or key that is called ``name`` here or in other tools; empty if there is none.

    Args:
        name: the flag or key.
        value: the value to set; empty: the placeholder of the help page.
    """
    name = name.lower().replace("-", "_")
    ours = name if name in FLAGS else OTHER_NAMES.get(name, "")
    flag = FLAGS.get(ours)
    if flag is None:
        return ours and f"{ours} {value or 'VALUE'}"
    return f"-{ours}={value or flag.argument}" if flag.argument else f"-{ours}"


def find_key(name: str) -> str:
    """Return the key of a flag, or of another tool's name for one; empty if there is none."""
    ours = OTHER_NAMES.get(name.lower(), name.lower())
    return (FLAGS[ours].key or "") if ours in FLAGS else ours if ours in keys() else ""


def _closest_flag(name: str) -> str:
    spelling = spell_here(name)
    if spelling:
        return f"write {spelling}"
    near = difflib.get_close_matches(name.lower(), list(FLAGS), n=1, cutoff=0.5)
    if near:
        return f"did you mean '-{near[0]}'?"
    return (
        f"valid flags: {', '.join(f'-{flag}' for flag in FLAGS)}; keys are written without a dash: TRAIN.BASE_LR 3e-4"
    )


def _guess(word: str) -> str:
    if word in recipes.names():
        return f": did you mean '-cfg={word}'?"
    if word.endswith((".yaml", ".yml")):
        return f": did you mean '-cfg={word}'?"
    spelling = spell_here(word)
    return f": did you mean '{spelling}'?" if spelling else ": write TRAIN.BASE_LR 3e-4, for example"
