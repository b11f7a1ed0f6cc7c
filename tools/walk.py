"""Count the files of the package that a batch, a score and a key pass through: ``python tools/walk.py [-v]``.

Each walk runs the digits recipe in this process and counts the files with a function that is entered, also during an
import; module and class bodies do not count. The batch is the second one of a training run. With ``-v``, the files are
listed in the order of their first entry. ``PADDLEVIT_DIST_PLAIN_LAYERS=`` (empty) includes the compiled layers of CPUs.
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
walks: dict[str, dict[str, int]] = {"key": {}, "batch": {}, "evaluate": {}}  # files with their numbers of entries
current = ""


def follow(frame, event, _) -> None:
    """Count an entered function (see ``sys.setprofile``)."""
    global current
    if threading.current_thread().name == "heartbeat":  # its line for a quiet run may come at any time
        return
    code = frame.f_code
    file, is_function = code.co_filename, code.co_flags & inspect.CO_OPTIMIZED
    if event != "call" or not is_function or not file.startswith(PACKAGE) or not file.endswith(".py"):
        return
    if code.co_name == LAST:
        current = {"training": "second", "batch": ""}.get(current, current)
    elif code.co_name == FIRST and current == "second":  # the first update also builds what the later ones use
        current = "batch"
    if current in walks:
        name = file[len(PACKAGE) :]
        walks[current][name] = walks[current].get(name, 0) + 1


class ScoreWatch(io.StringIO):
    """Standard output that ends the walk of an evaluation when the line with the score is written."""

    def write(self, text: str) -> int:
        """Keep the text, and end the walk at the score."""
        global current
        if text.startswith("top-1 "):
            current = ""
        return super().write(text)


def main() -> None:
    """Run the three walks and print their numbers of files."""
    global current
    sys.path.insert(0, str(Path(PACKAGE).parent))
    # The first variable says that this process has the environment of a run, so it is not started again.
    os.environ.update(PADDLEVIT_DIST_ENVIRONMENT="", GLOG_minloglevel="2")
    os.environ.setdefault("PADDLEVIT_DIST_PLAIN_LAYERS", "1")
    threading.setprofile(follow)
    sys.setprofile(follow)
    current = "key"
    from paddlevit_dist import settings

    train = settings.load(["-cfg=vit_digits"]).values.TRAIN
    from paddlevit_dist.engine.schedule import build_schedule

    build_schedule(train, updates_per_epoch=44, effective_batch=32)
    current = ""
    from paddlevit_dist.commands import import_command

    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(ScoreWatch()):
        words = ["-cfg=vit_digits", "-ngpus=1", "-num_workers=0"]
        current = "training"
        import_command("train")([*words, "-epochs=1", "TRAIN.WARMUP_EPOCHS=0", f"-output={folder}/run"])
        current = "evaluate"
        import_command("evaluate")([*words, f"-pretrained={folder}/run", f"-output={folder}/scored"])
    sys.setprofile(None)
    for name, files in walks.items():
        folders = collections.Counter(file.partition("/")[0] for file in files)
        shares = ", ".join(f"{folder} {number}" for folder, number in folders.most_common())
        print(f"{name}: {len(files)} files, {sum(files.values()):,} calls ({shares})")
        if "-v" in sys.argv:
            print("\n".join(f"  {count:7,} {file}" for file, count in files.items()))


if __name__ == "__main__":
    main()
