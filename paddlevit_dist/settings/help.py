"""Pages that ``-h`` prints of the commands that take the main flags, and after ``-h keys`` of the keys of a task."""

from collections.abc import Sequence

from ..extension import CommandHelp, extensions
from ..registry import REGISTRATIONS, TASKS, find_name, find_package, own_tables, tables_of_every_run
from ..runtime.environment import program
from ..runtime.errors import UserError
from ..runtime.help_pages import HELP, page, row
from . import command_line, files, user_modules
from .command_line import FLAGS, describe_flag
from .key import COMMAND_LINE, Key, KeySetting
from .table import keys

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
        "Evaluate trained weights, or an exported model (MODEL.onnx), on all devices.",
        (
            "-cfg=vit_digits -pretrained=output/vit_digits",
            "-cfg=finetune_folder -data_path=my_data -pretrained=output/mine",
            "-cfg=vit_digits -pretrained=digits.pdparams",
        ),
    ),
    "inspect data": CommandHelp(
        "Draw training samples, as they are evaluated and as epochs have them: data.png.",
        (
            "-cfg=finetune_folder -data_path=my_data",
            "-cfg=detr_shapes -output=output/look",
            "-cfg=pointgroup_synthetic_rooms -output=output/look",
        ),
    ),
    **{name: about for one in extensions() for name, about in one.about.items()},
}


def help_text(argv: Sequence[str] = ("-h",), command: str = "train") -> str:
    """Write what ``-h`` prints of a command that takes the main flags; with ``-h keys`` the keys of the task that the
    other words name, and those of every run; with ``-h all`` those of other tasks, too."""
    after = {following for word, following in zip(argv, argv[1:]) if word in HELP}
    if after & {"keys", "all"}:
        words = [word for word in argv if word not in (*HELP, "keys", "all")]
        return "\n".join(_keys(words, shows_all="all" in after))
    if command == "train" and {"-eval", "--eval"} & set(argv):
        command = "evaluate"
    about = ABOUT[command]
    rows, group = [], ""
    for flag in FLAGS.values():
        left = f"-{flag.name}={flag.argument}" if flag.argument else f"-{flag.name}"
        rows.append((f"{flag.group if flag.group != group else '':9}{left}", describe_flag(flag)))
        group = flag.group
    return page(
        f"{program(command)} [-flag=value ...] [KEY VALUE ...]",
        about.meaning,
        (f"{program(command)} {example}".rstrip() for example in about.examples),
        rows,
        "-flag=value, --flag=value, -flag value are equal. Keys override the YAML file.",
    )


def _keys(words: Sequence[str], shows_all: bool) -> list[str]:
    """The keys of the task that the words name, those of every run, and perhaps those of other tasks."""
    _load_own_code(words)
    task = _find_task(words)
    every_run = {key.name: key for table in tables_of_every_run() for key in table.keys}
    of_own = {key.name: key for of in REGISTRATIONS for table in own_tables(*of) for key in table.keys}
    of_task = {**keys(task), **of_own}
    others_of_task = {name: key for name, key in of_task.items() if name not in every_run and name not in of_own}
    others = {name: key for name, key in keys().items() if name not in of_task}
    lines = ["Keys are set in a YAML file, or after the flags: TRAIN.BASE_LR 3e-4."]
    lines += _section(f"keys of TASK {task}", others_of_task)
    lines += _section("keys of your own code", of_own)
    lines += _section("keys of every run", every_run)
    if shows_all:
        lines += _section("keys of other tasks", others)
    elif others:
        lines += ["", f"{len(others)} keys of other tasks: -h all, or -h keys with their recipe, -cfg=FILE"]
    return lines


def _section(title: str, rows: dict[str, Key]) -> list[str]:
    width = max((len(name) for name in rows), default=0)
    flags = {flag.key: f"-{flag.name}, " for flag in FLAGS.values() if flag.key}
    lines = ["", f"{title}:"] if rows else []
    for key in rows.values():
        if key.name != "BASE":
            choices = f"; {key.expected()}" if key.choices else ""
            default = list(key.default) if isinstance(key.default, tuple) else key.default
            lines += row(key.name, f"{key.meaning}{choices} ({flags.get(key.name, '')}default {default})", width)
    return lines


def _load_own_code(words: Sequence[str]) -> None:
    """Import what the words name, for the keys that it registers."""
    try:
        given, _ = command_line.read(words)
    except UserError:  # help is printed all the same
        return
    named = files.read(given["cfg"][-1]) if "cfg" in given else []
    place = [KeySetting("IMPORTS", ",".join(given["import"]), COMMAND_LINE, "-import")] if "import" in given else []
    user_modules.load([*named, *place])


def _find_task(words: Sequence[str]) -> str:
    """The task that the words choose, as far as they can be parsed: those who got them wrong need help, too."""
    try:
        given, overrides = command_line.read(words)
        settings = {setting.name: setting.value for cfg in given.get("cfg", [])[-1:] for setting in files.read(cfg)}
        settings.update([*(("DATA.DATASET", name) for name in given.get("dataset", [])), *overrides])
        if "TASK" in settings:
            return find_name("task", settings["TASK"])
        package = (
            find_package("dataset", find_name("dataset", settings["DATA.DATASET"]))
            if "DATA.DATASET" in settings
            else None
        )
    except UserError:
        package = None
    return next((task for task in TASKS if package and find_package("task", task) == package), keys()["TASK"].default)
