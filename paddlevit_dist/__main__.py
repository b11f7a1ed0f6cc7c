"""The command ``paddlevit-dist COMMAND``, also ``python -m paddlevit_dist COMMAND``.

``main_multi_gpu.py`` and the run scripts are other names of its ``train``. Signals are handled here, once.
"""

import sys
from collections.abc import Sequence

from .core.runtime import process_exit, signals

# Names of commands in other tools -> ours.
_OTHER_NAMES = {
    **dict.fromkeys(("val", "valid", "validate", "eval", "test"), "evaluate"),
    **dict.fromkeys(("detect", "infer", "inference", "classify", "segment", "track", "demo"), "predict"),
    **dict.fromkeys(("fit", "finetune", "resume"), "train"),
    **dict.fromkeys(("summary", "info"), "inspect"),
    **dict.fromkeys(("checks", "check"), "doctor"),
}


def main(words: Sequence[str] | None = None) -> int:
    """Run a command line, by default of this process, report errors, and return the exit code of the process."""
    words = sys.argv[1:] if words is None else list(words)
    trains = words[:1] in (["train"], ["search"]) and signals.looks_like_training(words[1:])
    try:
        signals.block()
        process_exit.die_with_command()
        # Only now: before signals are blocked, they end Python with a traceback.
        from .core.runtime.errors import run_and_report
    except KeyboardInterrupt:  # before signals are blocked
        print("interrupted", file=sys.stderr)
        return signals.STOPPED if trains else 130
    return run_and_report(lambda: _run(words), trains)


def _run(words: list[str]) -> None:
    import itertools
    import os

    from .core.commands import COMMANDS, format_overview, format_rows, import_command, list_commands
    from .core.runtime.environment import program
    from .core.runtime.errors import UserError
    from .core.runtime.help_pages import HELP
    from .core.runtime.hints import find_similar, fix_dash
    from .core.runtime.printing import hide_known_warnings

    for word in itertools.takewhile(lambda word: word != "--", words):
        if fixed := fix_dash(word):
            raise UserError(f"{word} begins with a dash in place of a hyphen, as pasted texts do: write {fixed}")
    os.environ.setdefault("GLOG_minloglevel", "2")  # hide Paddle's own log and warnings
    hide_known_warnings()
    if not words or words[0] in (*HELP, "help"):
        print(format_overview())
        return
    group = [name for name in list_commands() if name.startswith(words[0] + " ")]
    if group and words[0] not in COMMANDS and (not words[1:] or words[1] in (*HELP, "help")):  # prepare, prepare -h
        print("\n".join([f"usage: {program(words[0] + ' COMMAND ...')}", "", *format_rows(group)]))
        return
    if words[0] in ("-version", "--version"):
        words = ["version"]
    length = 2 if " ".join(words[:2]) in COMMANDS else 1
    command = " ".join(words[:length])
    if command not in COMMANDS:
        from .core.commands.parser import split_imports
        from .core.registry import plugins
        from .core.settings.key import show  # these two need third-party packages

        modules, others = split_imports(words)
        plugins.load(modules, "-import")
        if modules or plugins.load_installed():  # they may have brought the command
            _run(others)
            return
        command_name = _OTHER_NAMES.get(words[0].lower())
        hint = f"did you mean '{program(command_name)}'? " if command_name else ""
        near = find_similar(" ".join(words[:2]), COMMANDS) or find_similar(command, COMMANDS)
        hint = hint or (f"did you mean '{near[0]}'? " if near else "")
        raise UserError(f"no command {show(command)}: {hint}'{program('-h')}' lists all")
    import_command(command)(words[length:])


if __name__ == "__main__":
    sys.exit(main())
