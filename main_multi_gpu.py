"""Train or evaluate on every device of this machine."""

import sys

from paddlevit_dist import signals


def main() -> None:
    from paddlevit_dist.commands import train

    train.run(sys.argv[1:])


if __name__ == "__main__":
    signals.hold()
    from paddlevit_dist.errors import run_and_report

    sys.exit(run_and_report(main, trains=signals.looks_like_training(sys.argv[1:])))
