"""Train or evaluate on every device of this machine: ``paddlevit-dist train`` by PaddleViT's name."""

import sys

from paddlevit_dist.__main__ import main as run


def main() -> None:
    """Train, or evaluate with ``-eval``, by the command line of this process, and exit."""
    sys.exit(run(["train", *sys.argv[1:]]))


if __name__ == "__main__":
    main()
