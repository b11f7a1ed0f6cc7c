"""Train or evaluate on every device of this machine: ``paddlevit-dist train`` under PaddleViT's name."""

import sys

from paddlevit_dist.__main__ import main as carry_out


def main() -> None:
    """Train, or evaluate with ``-eval``, as the command line of this process says, and end it."""
    sys.exit(carry_out(["train", *sys.argv[1:]]))


if __name__ == "__main__":
    main()
