"""Train or evaluate on every device of this machine."""

import sys


def main() -> None:
    from paddlevit_dist.commands import train

    train.run(sys.argv[1:])


if __name__ == "__mp_main__":  # in a worker, which imports Paddle next
    from paddlevit_dist import late_imports

    late_imports.install()

if __name__ == "__main__":
    try:
        from paddlevit_dist import late_imports, signals

        signals.hold()
        late_imports.install()
    except KeyboardInterrupt:  # in the very first moment
        print("interrupted", file=sys.stderr)
        sys.exit(130 if "-eval" in sys.argv else 75)

    from paddlevit_dist.errors import run_and_report

    sys.exit(run_and_report(main, trains=signals.looks_like_training(sys.argv[1:])))
