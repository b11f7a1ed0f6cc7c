"""The help pages of the commands that take the main flags, and of the keys after ``-h keys``."""

from collections.abc import Sequence
from typing import NamedTuple

from ..registry.lookup import (
    REGISTRATIONS,
    TASKS,
    annotation_type,
    common_tables,
    custom_tables,
    find_name,
    find_package,
)
from ..runtime.environment import program
from ..runtime.errors import UserError
from ..runtime.help_pages import HELP, page, row
from . import command_line, files, user_modules
from .command_line import describe_flag
from .key import Key
from .table import COMMAND_LINE, KeySetting, keys


class CommandHelp(NamedTuple):
    """The help of a command that takes the main flags."""

    meaning: str  # what the command does
    examples: tuple[str, ...]  # command lines


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
            "-cfg=vit_digits -pretrained=digits.pdparams",
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
        "Find validation samples that are also in the training set; writes leaks.json and leaks.png.",
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
    for flag in command_line.flags().values():
        if flag.group == "prediction":  # on the page of predict
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
    _load_user_modules(words)
    task = _find_task(words)
    every_run = {key.name: key for table in common_tables() for key in table.keys}
    user_keys = {key.name: key for name in REGISTRATIONS for table in custom_tables(*name) for key in table.keys}
    task_keys = {**keys(task), **user_keys}
    task_only = {name: key for name, key in task_keys.items() if name not in every_run and name not in user_keys}
    others = {name: key for name, key in keys().items() if name not in task_keys}
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


def _load_user_modules(words: Sequence[str]) -> None:
    """Import the modules that the words name, for the keys that they register."""
    try:
        given, _ = command_line.read(words)
    except UserError:  # print the help anyway
        return
    settings = files.read(given["cfg"].values[-1]) if "cfg" in given else []
    if "import" in given:
        settings.append(KeySetting("IMPORTS", ",".join(given["import"].values), COMMAND_LINE, "-import"))
    user_modules.load(settings)


def _find_task(words: Sequence[str]) -> str:
    """Return the task that the words choose; the default one if they cannot be parsed, so that help still works."""
    try:
        given, overrides = command_line.read(words)
        cfg, dataset = given.get("cfg"), given.get("dataset")
        settings = {setting.name: setting.value for setting in files.read(cfg.values[-1])} if cfg else {}
        settings.update({"DATA.DATASET": dataset.values[-1]} if dataset else {})
        settings.update(overrides)
        if "TASK" in settings:
            return find_name("task", settings["TASK"])
        dataset_name = find_name("dataset", settings["DATA.DATASET"]) if "DATA.DATASET" in settings else ""
    except UserError:
        dataset_name = ""
    holds = find_package("dataset", dataset_name), annotation_type("dataset", dataset_name)
    fitting = (task for task in TASKS if (find_package("task", task), annotation_type("task", task)) == holds)
    return next(fitting, keys()["TASK"].default) if holds[0] else keys()["TASK"].default
