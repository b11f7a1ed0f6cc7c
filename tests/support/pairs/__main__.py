"""Run a campaign: ``python -m support.pairs -task=detection -minutes=30`` from ``tests``, or ``make pairs``."""

import argparse
import sys
import time
from pathlib import Path

from .campaign import Campaign
from .features import TASKS
from .materials import Materials


def main() -> int:
    """Run one campaign and print what failed; the exit code is 1 if anything did."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-task", choices=TASKS, default="classification")
    parser.add_argument("-minutes", type=float, default=10.0, help="no combination begins later")
    parser.add_argument("-seed", type=int, default=None, help="default: from the clock")
    parser.add_argument("-jobs", type=int, default=1, help="combinations at once")
    parser.add_argument("-work", type=Path, default=Path("output/pairs"), help="folder for data and runs")
    parser.add_argument("-only", default="", help="settings of all combinations, such as average=half,processes=2")
    options = parser.parse_args()
    seed = int(time.time()) if options.seed is None else options.seed
    fixed = dict(word.split("=") for word in options.only.split(",") if word)
    work = options.work.resolve()
    print(f"seed {seed}", flush=True)
    with Materials(work) as materials:
        deadline = time.monotonic() + 60 * options.minutes
        result = Campaign(options.task, work, materials, seed, deadline, fixed).run(options.jobs)
    print(f"{options.task}: {result.format()}, seed {seed}")
    for failure in result.failures:
        print(f"| {failure.check} | {failure.settings} | {failure.found} | {failure.command} |")
    return int(bool(result.failures))


if __name__ == "__main__":
    sys.exit(main())
