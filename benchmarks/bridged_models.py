"""Our own networks beside the same networks that timm's files build on Paddle: training steps on a CPU, one thread.

    python benchmarks/bridged_models.py

Both have 1,000 classes and the same optimizer.
"""

import argparse
import sys

import children
import rounds
import training_updates
from smallest import sized

BATCH, ROUNDS = sized(8, 1), 5
NAMES = ("vit_tiny_patch16_224", "swin_tiny_patch4_window7_224", "convnext_tiny", "resnet18")[: sized(4, 1)]


def measure() -> None:
    """Time a step of each pair in turns, and print the ratios."""
    from paddlevit_dist.core.tasks.model_factory import create_model

    rounds.print_machine()
    rows, result = [], {}
    for name in NAMES:
        contenders = {}
        for kind, of_kind in (("ours", name), ("timm", f"timm:{name}")):
            model = create_model(of_kind)
            contenders[kind] = training_updates.get_timed_step(model, model.parameters(), BATCH)
        taken = rounds.interleave(contenders, ROUNDS)
        ratio = rounds.ratios(taken["timm"], taken["ours"])
        speeds = (f"{BATCH / rounds.Spread.of(taken[kind]).median:.1f}" for kind in contenders)
        rows.append([name, *speeds, ratio.text()])
        result[f"{name}, timm's files over ours"] = ratio.median
    rounds.print_table(
        f"training steps of {BATCH} images", ["network", "ours, images/s", "timm's files", "ratio"], rows
    )
    rounds.print_result(result)


def main() -> None:
    """Start the measurement in the environment of a run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--measure", action="store_true", help=argparse.SUPPRESS)
    if parser.parse_args().measure:
        measure()
        return
    environment = {**children.tuned_environment(1), "OMP_NUM_THREADS": "1"}
    process = children.start([sys.executable, __file__, "--measure"], environment)
    try:
        raise SystemExit(process.wait())
    finally:
        children.end(process)


if __name__ == "__main__":
    main()
