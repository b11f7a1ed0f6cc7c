"""Train or evaluate on every device of this machine."""

import sys

from paddlevit_dist.errors import run_and_report


def main() -> None:
    from paddlevit_dist.commands import train

    train.run(sys.argv[1:])


if __name__ == "__main__":
    sys.exit(run_and_report(main))
