"""``python -m paddlevit_dist COMMAND``: tools beside the main job."""

from __future__ import annotations

import importlib
import sys

from .errors import UserError, run_and_report
from .registry import closest

COMMANDS = {
    "doctor": ("paddlevit_dist.parallel.doctor:run", "what this machine and its Paddle can do"),
}


def main() -> None:
    words = sys.argv[1:]
    if not words or words[0] in ("-h", "--help", "help"):
        print("python -m paddlevit_dist COMMAND\n")
        for name, (_, meaning) in COMMANDS.items():
            print(f"  {name:10} {meaning}")
        return
    if words[0] not in COMMANDS:
        hint = closest(words[0], list(COMMANDS))
        raise UserError(f"no command '{words[0]}': {hint}valid ones: {', '.join(COMMANDS)}")
    module, _, function = COMMANDS[words[0]][0].partition(":")
    getattr(importlib.import_module(module), function)(words[1:])


if __name__ == "__main__":
    sys.exit(run_and_report(main))
