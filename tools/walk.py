"""Count the functions of the package that a batch, a score and a key pass through: ``python tools/walk.py [-v]``.

Each walk runs the digits recipe in this process and counts what ``def`` made and is entered, also during an import:
no module and class bodies, comprehensions or lambdas. The batch is the second one of a training run. With ``-v``, the
functions are listed in the order of their first entry, with their numbers of calls. ``PADDLEVIT_DIST_PLAIN_LAYERS=``
(empty) includes the compiled layers of CPUs.
"""

import collections
import contextlib
import inspect
import io
import os
import sys
import tempfile
import threading
from pathlib import Path

PACKAGE = f"{Path(__file__).resolve().parents[1] / 'paddlevit_dist'}{os.sep}"
FIRST, LAST = "synchronized_groups", "after_step"  # waits for the batches of a step; called after each step
walks: dict[str, dict[tuple, int]] = {"key": {}, "batch": {}, "evaluate": {}}  # (file, line, name): number of calls
current = ""


def follow(frame, event, _) -> None:
    """Count an entered function (see ``sys.setprofile``)."""
    global current
    if threading.current_thread().name in ("heartbeat", "loader watchdog"):  # they look at a slow run at any time
        return
    code = frame.f_code
    file, is_function = code.co_filename, code.co_flags & inspect.CO_OPTIMIZED and not code.co_name.startswith("<")
    if event != "call" or not is_function or not file.startswith(PACKAGE) or not file.endswith(".py"):
        return
    if code.co_name == LAST:
        current = {"training": "second", "batch": ""}.get(current, current)
    elif code.co_name == FIRST and current == "second":  # the first update also builds what the later ones use
        current = "batch"
    if current in walks:
        function = (file[len(PACKAGE) :], code.co_firstlineno, code.co_name)
        walks[current][function] = walks[current].get(function, 0) + 1


class ScoreWatch(io.StringIO):
    """Standard output that ends the walk of an evaluation when the line with the score is written."""

    def write(self, text: str) -> int:
        """Keep the text, and end the walk at the score."""
        global current
        if text.startswith("top-1 "):
            current = ""
        return super().write(text)


def main() -> None:
    """Run the three walks and print their numbers of functions, calls and files."""
    global current
    sys.path.insert(0, str(Path(PACKAGE).parent))
    # The first variable says that this process has the environment of a run, so it is not started again.
    os.environ.update(PADDLEVIT_DIST_ENVIRONMENT="", GLOG_minloglevel="2")
    os.environ.setdefault("PADDLEVIT_DIST_PLAIN_LAYERS", "1")
    threading.setprofile(follow)
    sys.setprofile(follow)
    current = "key"
    from paddlevit_dist.core import settings

    train = settings.load(["-cfg=vit_digits"]).values.TRAIN
    from paddlevit_dist.core.engine.schedule import build_schedule

    build_schedule(train, updates_per_epoch=44, effective_batch=32)
    current = ""
    from paddlevit_dist.core.commands import import_command

    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(ScoreWatch()):
        words = ["-cfg=vit_digits", "-ngpus=1", "-num_workers=0"]
        current = "training"
        import_command("train")([*words, "-epochs=1", "TRAIN.WARMUP_EPOCHS=0", f"-output={folder}/run"])
        current = "evaluate"
        import_command("evaluate")([*words, f"-pretrained={folder}/run", f"-output={folder}/scored"])
    sys.setprofile(None)
    for walk, functions in walks.items():
        files = {file for file, *_ in functions}
        folders = collections.Counter(
            file.removeprefix("core/").removeprefix("extensions/").partition("/")[0] for file, *_ in functions
        )
        shares = ", ".join(f"{folder} {number}" for folder, number in folders.most_common())
        calls = sum(functions.values())
        print(f"{walk}: {len(functions)} functions, {calls:,} calls, {len(files)} files ({shares})")
        if "-v" in sys.argv:
            for (file, line, name), count in functions.items():
                print(f"  {count:7,} {file}:{line} {name}")


if __name__ == "__main__":
    main()
