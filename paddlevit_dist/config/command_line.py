"""The command line: one table of flags, from which it is read and from which ``-h`` is written, with the keys of a
task."""

from __future__ import annotations

import difflib
import os
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ..environment import program
from ..errors import UserError
from ..registry import OWN, TASKS, key_tables, known_name, own_tables, room_of
from ..text_files import parse_yaml
from ..version import versions
from . import files, own_imports
from .key import COLUMNS, COMMAND_LINE, Key, Setting, show
from .table import keys


class Flag(NamedTuple):
    """``key`` is what the flag sets, None if it is about the command itself; ``argument`` is None for a switch."""

    name: str
    argument: str | None
    key: str | None
    group: str
    meaning: str = ""  # empty: the meaning of the key


FLAGS: dict[str, Flag] = {
    flag.name: flag
    for flag in (
        Flag(
            "cfg",
            "FILE",
            None,
            "what to run",
            "YAML file, after the BASE files it names, or a recipe by its name (-cfg=vit_digits; 'inspect recipes' "
            "lists them); without it and without data: the digits example",
        ),
        Flag("import", "MODULE", "IMPORTS", "what to run", "Python module or file of yours, imported in every process"),
        Flag("eval", None, "EVAL", "what to run"),
        Flag("selftest", None, "SELFTEST", "what to run"),
        Flag("replay", "FILE", "REPLAY", "what to run"),
        Flag("output", "FOLDER", "SAVE", "what to run"),
        Flag("dataset", "NAME", "DATA.DATASET", "data"),
        Flag("data_path", "PATH", "DATA.DATA_PATH", "data"),
        Flag("split", "SPLIT", "DATA.SPLIT", "data"),
        Flag("image_size", "PIXELS", "DATA.IMAGE_SIZE", "data"),
        Flag("batch_size", "N", "DATA.BATCH_SIZE", "data", "images per device and step, also in evaluation"),
        Flag("batch_size_eval", "N", "DATA.BATCH_SIZE_EVAL", "data"),
        Flag("num_workers", "N", "DATA.NUM_WORKERS", "data"),
        Flag("num_classes", "N", "MODEL.NUM_CLASSES", "model"),
        Flag("pretrained", "PATH", "MODEL.PRETRAINED", "model"),
        Flag("resume", "PATH", "MODEL.RESUME", "model"),
        Flag("allow_changes", None, "ALLOW_CHANGES", "model"),
        Flag("epochs", "N", "TRAIN.NUM_EPOCHS", "training"),
        Flag("stop_after_epoch", "N", "TRAIN.STOP_AFTER_EPOCH", "training"),
        Flag("stop_after_seconds", "SECONDS", "STOP_AFTER_SECONDS", "training"),
        Flag("last_epoch", "N", "TRAIN.LAST_EPOCH", "training"),
        Flag("accum_iter", "N", "TRAIN.ACCUM_ITER", "training"),
        Flag("amp", None, "AMP", "training"),
        Flag("recompute", None, "TRAIN.RECOMPUTE", "training"),
        Flag("log_to", "NAMES", "LOG_TO", "training"),
        Flag("profile", "N", "PROFILE", "training"),
        Flag("ngpus", "N", "NGPUS", "machine"),
        Flag("seed", "N", "SEED", "machine"),
        Flag("show_config", None, None, "help", "print the merged configuration, with the source of each value"),
        Flag(
            "h",
            None,
            None,
            "help",
            "print this help, with the keys of the task that -cfg, -dataset or TASK names; -h all: of all; also -help",
        ),
        Flag("version", None, None, "help", "print the versions of this package, Paddle and Python"),
    )
}

# What other tools call our flags and keys.
OTHER_FLAGS = {
    **dict.fromkeys(("config", "config_file", "c"), "-cfg=FILE"),
    **dict.fromkeys(("data_dir", "data_root", "dataset_path"), "-data_path=PATH"),
    **dict.fromkeys(("output_dir", "out", "save_dir", "work_dir", "log_dir"), "-output=FOLDER"),
    **dict.fromkeys(("b", "bs", "batch"), "-batch_size=N"),
    **dict.fromkeys(("j", "workers"), "-num_workers=N"),
    **dict.fromkeys(("img_size", "imgsz", "input_size"), "-image_size=PIXELS"),
    **dict.fromkeys(("nb_classes", "classes"), "-num_classes=N"),
    **dict.fromkeys(("checkpoint", "weights", "finetune", "initial_checkpoint"), "-pretrained=PATH"),
    **dict.fromkeys(("gpus", "nproc_per_node", "devices", "num_gpus"), "-ngpus=N"),
    **dict.fromkeys(("epoch", "num_epochs", "max_epochs"), "-epochs=N"),
    **dict.fromkeys(("evaluate", "test", "val"), "-eval"),
    **dict.fromkeys(("lr", "learning_rate", "base_lr"), "TRAIN.BASE_LR VALUE"),
    **dict.fromkeys(("wd", "weight_decay"), "TRAIN.WEIGHT_DECAY VALUE"),
    **dict.fromkeys(("opt", "optimizer"), "TRAIN.OPTIMIZER.NAME VALUE"),
    **dict.fromkeys(("model", "arch", "a"), "MODEL.NAME VALUE"),
    **dict.fromkeys(("warmup_epochs", "warmup"), "TRAIN.WARMUP_EPOCHS VALUE"),
    **dict.fromkeys(("clip_grad", "grad_clip"), "TRAIN.GRAD_CLIP VALUE"),
    "smoothing": "TRAIN.SMOOTHING VALUE",
    "mixup": "TRAIN.MIXUP_ALPHA VALUE",
    "cutmix": "TRAIN.CUTMIX_ALPHA VALUE",
    "drop_path": "MODEL.DROPPATH VALUE",
    "task": "TASK VALUE",
}

_HELP = {"-h", "--h", "-help", "--help"}
EXAMPLE = r"""CUDA_VISIBLE_DEVICES=0,1,2,3,4,5,6,7 {} \
      -cfg='{}' -dataset='imagenet2012' -batch_size=16 \
      -data_path='/dataset/imagenet'{} -pretrained='./vit_base_patch16_224'"""


@dataclass
class CommandLine:
    """What the command line asks for; ``settings`` in the order in which later ones win; ``argv`` is all of it."""

    cfg: str | None = None
    show: bool = False
    settings: list[Setting] = field(default_factory=list)
    notices: list[str] = field(default_factory=list)
    argv: list[str] = field(default_factory=list)


def parse(argv: Sequence[str]) -> CommandLine:
    """Read flags (``-flag=value``, ``-flag value``, ``--flag``) and overrides (``KEY VALUE``, ``KEY=VALUE``).

    Raises:
        UserError: a flag is not known, lacks its value or has one too many; an override is incomplete.
        SystemExit: help or the version was asked for, and printed.
    """
    if _HELP & set(argv):
        print(help_text(argv))
        raise SystemExit(0)
    if {"-version", "--version"} & set(argv):
        print(versions())
        raise SystemExit(0)
    given, overrides = _read(argv)
    command = CommandLine(show="show_config" in given, argv=list(argv))
    for name, values in given.items():
        flag = FLAGS[name]
        if name == "import":  # each adds to the others
            values = [",".join(values)]
        if len(values) > 1:
            last = f": the last one, {show(values[-1])}, is used" if flag.argument else ""
            command.notices.append(f"-{name} is given {len(values)} times{last}")
        if flag.key:
            value = _typed(flag.key, values[-1]) if flag.argument else True
            command.settings.append(Setting(flag.key, value, COMMAND_LINE, f"-{name}"))
    if "cfg" in given:
        command.cfg = given["cfg"][-1]
    named = {setting.name for setting in command.settings}
    if "batch_size" in given and "DATA.BATCH_SIZE_EVAL" not in named:
        command.settings.append(Setting("DATA.BATCH_SIZE_EVAL", given["batch_size"][-1], COMMAND_LINE, "-batch_size"))
    for name, value in overrides:
        if name in named:
            command.notices.append(f"{name} is given more than once: the last override, {show(value)}, is used")
        named.add(name)
        command.settings.append(Setting(name, value, COMMAND_LINE, COMMAND_LINE))
    return command


def _read(argv: Sequence[str]) -> tuple[dict[str, list[str]], list[tuple[str, Any]]]:
    """Flag name -> its values in order, and (key, value) of each override."""
    given: dict[str, list[str]] = {}
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
                    raise UserError(f"-{name} takes no value: write -{name} alone, or leave it out")
            elif not equals:
                if not words or _is_flag(words[0]):
                    raise UserError(f"-{name} needs a value: -{name}={flag.argument}")
                value = words.pop(0)
            if name == "cfg" and not value:
                raise UserError(
                    "-cfg needs a value: a YAML file or the name of a recipe; python -m paddlevit_dist inspect recipes "
                    "lists them"
                )
            if name == "import" and not value.strip():
                raise UserError("-import needs a value: a module, my_project.things, or a file, my_things.py")
            given.setdefault(name, []).append(value)
        else:
            key, equals, value = word.partition("=")
            if not equals:
                if not words or _is_flag(words[0]):
                    raise UserError(
                        f"command line: {show(key)} is neither a flag nor a KEY with its VALUE{_guess(key)}"
                    )
                value = words.pop(0)
            overrides.append((key, _typed(key, value)))
    return given, overrides


def _is_flag(word: str) -> bool:
    if not word.startswith("-"):
        return False
    try:
        float(word)
    except ValueError:
        return True
    return False


def _typed(name: str, value: str) -> Any:
    """Texts and numbers are parsed by their key; YAML parses anything else (true, a list)."""
    key = keys().get(name)
    if key and key.kind == "path" and key.optional and not value.strip():
        raise UserError(f"command line: {name} is empty: is a shell variable not set? Leave it out, or write None")
    if key and key.kind == "path" and value == "~":  # a path on a command line, nothing in a file
        return os.path.expanduser(value)
    if key and key.kind not in ("bool", "switch"):
        return value
    try:
        return parse_yaml(value)
    except ValueError:
        return value


def _closest_flag(name: str) -> str:
    if name.lower() in OTHER_FLAGS:
        return f"write {OTHER_FLAGS[name.lower()]}"
    near = difflib.get_close_matches(name.lower(), list(FLAGS), n=1, cutoff=0.5)
    if near:
        return f"did you mean '-{near[0]}'?"
    return (
        f"valid flags: {', '.join(f'-{flag}' for flag in FLAGS)}; keys are written without a dash: TRAIN.BASE_LR 3e-4"
    )


def _guess(word: str) -> str:
    if word in keys():
        return f": write {word}=VALUE"
    if word.endswith((".yaml", ".yml")):
        return f": did you mean '-cfg={word}'?"
    if word.lower() in FLAGS:
        return f": did you mean '-{word.lower()}'?"
    return ": write TRAIN.BASE_LR 3e-4, for example"


def help_text(argv: Sequence[str] = ("-h",)) -> str:
    """What ``-h`` prints: the flags by group, then the keys of the task that the other words name, then those of every
    run, and with ``-h all`` those of other tasks."""
    lines = _usage(argv)
    group = None
    for flag in FLAGS.values():
        if flag.group != group:
            group = flag.group
            lines += ["", f"{group}:"]
        left = f"-{flag.name}={flag.argument}" if flag.argument else f"-{flag.name}"
        right = flag.meaning or keys()[flag.key or ""].meaning
        if flag.key:
            right += f" ({flag.key}, default {_default(flag.key)})"
        lines += _row(left, right, 20)
    lines += ["", "Each flag works with one dash or two, and as -flag=value or -flag value.", ""]
    lines.append("Keys are set in a YAML file, or after the flags, which they override: TRAIN.BASE_LR 3e-4.")
    words = list(argv)
    shows_all = any(word in _HELP and following == "all" for word, following in zip(words, words[1:]))
    words = [word for word in words if word not in _HELP and word != "all"]
    _load_own_code(words)
    task = _task_of(words)
    every_run = {key.name: key for key in key_tables(task)[0].keys}
    of_own = {key.name: key for of in OWN for table in own_tables(*of) for key in table.keys}
    of_task = {**keys(task), **of_own}
    others_of_task = {name: key for name, key in of_task.items() if name not in every_run and name not in of_own}
    lines += _section(f"keys of TASK {task}", others_of_task)
    lines += _section("keys of your own code", of_own)
    lines += _section("keys of every run", every_run)
    others = {name: key for name, key in keys().items() if name not in of_task}
    if shows_all:
        lines += _section("keys of other tasks", others)
    elif others:
        lines += ["", f"{len(others)} keys of other tasks: -h all, or -h with their recipe, -cfg=FILE"]
    return "\n".join(lines)


def _usage(argv: Sequence[str]) -> list[str]:
    """How to call the command that was called, and an example."""
    usage = f"usage: {program('evaluate' if '-eval' in argv else 'train')} [-flag=value ...] [KEY VALUE ...]"
    entry = program("evaluate")
    words = (entry, "vit_base_patch16_224", "")
    if entry.endswith("main_multi_gpu.py"):
        words = (entry, "./configs/vit_base_patch16_224.yaml", " -eval")
    return [usage, "", "example:", f"  {EXAMPLE.format(*words)}"]


def _section(title: str, rows: dict[str, Key]) -> list[str]:
    width = max((len(name) for name in rows), default=0)
    lines = ["", f"{title}:"] if rows else []
    for key in rows.values():
        if key.name != "BASE":
            choices = f"; {key.expected()}" if key.choices else ""
            lines += _row(key.name, f"{key.meaning}{choices} (default {_default(key.name)})", width)
    return lines


def _row(left: str, right: str, width: int) -> list[str]:
    first = f"  {left:<{width}} "
    return textwrap.wrap(
        right,
        COLUMNS,
        initial_indent=first,
        subsequent_indent=" " * (width + 3),
        break_long_words=False,
        break_on_hyphens=False,
    )


def _load_own_code(words: Sequence[str]) -> None:
    """Import what the words name, for the keys that it registers."""
    try:
        given, _ = _read(words)
    except UserError:  # help is printed all the same
        return
    named = files.read(given["cfg"][-1]) if "cfg" in given else []
    place = [Setting("IMPORTS", ",".join(given["import"]), COMMAND_LINE, "-import")] if "import" in given else []
    own_imports.load([*named, *place])


def _task_of(words: Sequence[str]) -> str:
    """The task that the words choose, as far as they can be parsed: those who got them wrong need help, too."""
    try:
        given, overrides = _read(words)
        settings = {setting.name: setting.value for cfg in given.get("cfg", [])[-1:] for setting in files.read(cfg)}
        settings.update([*(("DATA.DATASET", name) for name in given.get("dataset", [])), *overrides])
        if "TASK" in settings:
            return known_name("task", settings["TASK"])
        room = (
            room_of("dataset", known_name("dataset", settings["DATA.DATASET"])) if "DATA.DATASET" in settings else None
        )
    except UserError:
        room = None
    return next((task for task in TASKS if room and room_of("task", task) == room), keys()["TASK"].default)


def _default(name: str) -> str:
    default = keys()[name].default
    return str(list(default) if isinstance(default, tuple) else default)
