"""The help pages of the commands that take the main flags, and of the keys after ``-h keys``."""

from collections.abc import Sequence
from typing import NamedTuple

from ..registry.lookup import annotation_type, find_name, find_package
from ..registry.names import REGISTRY
from ..runtime.environment import program
from ..runtime.errors import UserError
from ..runtime.help_pages import HELP, page, row
from . import command_line, parse
from .command_line import describe_flag
from .key import Key
from .key_tables import common_tables, custom_tables
from .table import KeySetting, find_keys


class CommandHelp(NamedTuple):
    """The help of a command that takes the main flags."""

    meaning: str  # what the command does
    examples: tuple[str, ...]  # command lines


_PAGES = {"prediction": "predict", "exported": "evaluate"}  # the only page of the flags of a group
_IMAGENET = "-cfg=vit_base_patch16_224 -data_path=/imagenet"
ABOUT = {
    "train": CommandHelp(
        "Train, and evaluate, on all devices of this machine.",
        (
            "-cfg=vit_digits",
            "-cfg=finetune_folder -data_path=my_data",
            f"{_IMAGENET} -batch_size=16 TRAIN.BASE_LR 1e-3",
        ),
    ),
    "evaluate": CommandHelp(
        "Evaluate a run (its settings and best weights), other weights, or an exported model, on all devices.",
        (
            "output/mine",
            "output/mine -split=test",
            "-cfg=vit_digits -pretrained=my.pdparams",
        ),
    ),
    "inspect data": CommandHelp(
        "Draw samples, as evaluated and as augmented in training: data.png.",
        (
            "-cfg=finetune_folder -data_path=my_data",
            "-cfg=detr_shapes -output=output/look",
            "-cfg=pointgroup_synthetic_rooms -output=output/look",
        ),
    ),
    "doctor": CommandHelp(
        "Checks versions, devices and memory; with -cfg or -data_path also data and some updates. "
        "Exit code: 0; 1 if a check fails; 2 if the command line or configuration is invalid.",
        ("", "-cfg=finetune_folder -data_path=my_data", "-cfg=vit_digits -ngpus=2"),
    ),
    "inspect leaks": CommandHelp(
        "Find validation samples that are in the training set (leaks.json, leaks.png).",
        (
            "-cfg=finetune_folder -data_path=my_data",
            "-cfg=vit_tiny_patch16_224 -data_path=/imagenet",
            "-cfg=detr_shapes -output=output/look",
        ),
    ),
}


def help_text(argv: Sequence[str] = ("-h",), command: str = "train") -> str:
    """Format the help page of a command that takes the main flags.

    ``-h keys`` lists the keys of the task that the other words name and the keys of every run; ``-h all`` lists all.
    """
    after = {following for word, following in zip(argv, argv[1:]) if word in HELP}
    if after & {"keys", "all"}:
        words = [word for word in argv if word not in (*HELP, "keys", "all")]
        return "\n".join(_format_keys(words, shows_all="all" in after))
    if command == "train" and {"-eval", "--eval"} & set(argv):
        command = "evaluate"
    about = ABOUT[command]
    rows, group = [], ""
    for flag in command_line.all_flags().values():
        if _PAGES.get(flag.group, command) != command:
            continue
        left = f"-{flag.name}={flag.argument}" if flag.argument else f"-{flag.name}"
        rows.append((f"{flag.group if flag.group != group else '':9}{left}", describe_flag(flag)))
        group = flag.group
    source = "[RUN] " if command == "evaluate" else ""
    return page(
        f"{program(command)} {source}[-flag=value ...] [KEY VALUE ...]",
        about.meaning,
        (f"{program(command)} {example}".rstrip() for example in about.examples),
        rows,
        "-flag=value, --flag=value, -flag value are equal. Keys override the YAML file.",
    )


def _format_keys(words: Sequence[str], shows_all: bool) -> list[str]:
    """Format the keys of the task that the words name, the keys of every run and, if requested, of other tasks."""
    try:
        command_line.read_words(words)
    except UserError:  # print the help anyway
        words = []
    task = _find_task(parse.import_modules(parse.read_given(words)).settings)
    every_run = {key.name: key for table in common_tables() for key in table.keys}
    user_keys = {
        key.name: key for name in REGISTRY.registrations for table in custom_tables(*name) for key in table.keys
    }
    task_keys = {**find_keys(task), **user_keys}
    task_only = {name: key for name, key in task_keys.items() if name not in every_run and name not in user_keys}
    others = {name: key for name, key in find_keys().items() if name not in task_keys}
    lines = ["Keys are set in a YAML file, or after the flags: TRAIN.BASE_LR 3e-4."]
    lines += _section(f"keys of TASK {task}", task_only)
    lines += _section("keys of your own code", user_keys)
    lines += _section("keys of every run", every_run)
    if shows_all:
        lines += _section("keys of other tasks", others)
    elif others:
        lines += ["", f"{len(others)} keys of other tasks: use -h all, or -h keys with their recipe, -cfg=FILE"]
    return lines


def _section(title: str, rows: dict[str, Key]) -> list[str]:
    width = max((len(name) for name in rows), default=0)
    lines = ["", f"{title}:"] if rows else []
    for key in rows.values():
        if key.name != "BASE":
            choices = f"; {key.expected()}" if key.choices else ""
            default = list(key.default) if isinstance(key.default, tuple) else key.default
            flag = f"-{key.flag.name}, " if key.flag else ""
            lines += row(key.name, f"{key.meaning}{choices} ({flag}default {default})", width)
    return lines


def _find_task(settings: Sequence[KeySetting]) -> str:
    """Return the task that is set, or that reads the dataset; the default one for unknown names: help still works."""
    values = {setting.name: setting.value for setting in settings}
    try:
        if "TASK" in values:
            return find_name("task", values["TASK"])
        dataset = find_name("dataset", values["DATA.DATASET"]) if "DATA.DATASET" in values else ""
    except UserError:
        dataset = ""
    holds = find_package("dataset", dataset), annotation_type("dataset", dataset)
    fitting = (task for task in REGISTRY.tasks if (find_package("task", task), annotation_type("task", task)) == holds)
    return next(fitting, find_keys()["TASK"].default) if holds[0] else find_keys()["TASK"].default
