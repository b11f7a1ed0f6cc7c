"""Commands end in one line that names the rank and what helps when a GPU's memory runs out."""

import sys

import pytest
from support.processes import run_command, run_workers
from support.trainings import small_runs
from support.trainings.full_gpus import SAID, no_memory
from support.trainings.runs import refusal
from support.trainings.trained import write_weights

from paddlevit_dist import rank, world_size
from paddlevit_dist.core.commands import train
from paddlevit_dist.core.engine import trainer


def run_out_on_the_last_rank(output: str, when_built: bool) -> None:
    made = small_runs.build(output, "-batch_size=16")
    if rank() == world_size() - 1:
        made.model.forward = no_memory
    trainer.Trainer = no_memory if when_built else lambda *_: made
    train.worker(made.config, made.task, made.datasets, [])


@pytest.mark.parametrize("processes, when_built", [(1, True), (2, False)])
def test_a_training_ends_with_one_line_that_names_the_rank(tmp_path, processes, when_built):
    target = "integration.core.engine.test_gpu_memory:run_out_on_the_last_rank"
    said = refusal(run_workers(target, str(tmp_path / "run"), when_built, processes=processes))
    assert said.startswith(f"out of memory on GPU 0 (rank {processes - 1}): {SAID}; lower DATA.BATCH_SIZE (16)")


PREDICT = """
import sys
from support.trainings.full_gpus import no_memory
from paddlevit_dist.core.commands.predict import run
from paddlevit_dist.core.inference import rank_prediction
from paddlevit_dist.core.runtime.errors import run_and_report

rank_prediction.predict_batch = no_memory
sys.exit(run_and_report(lambda: run(sys.argv[1:])))
"""


def test_predict_is_told_of_its_batch(tmp_path):
    from PIL import Image

    weights = write_weights(tmp_path / "weights", ["a", "b"])
    Image.new("RGB", (16, 16)).save(tmp_path / "one.png")
    command = [sys.executable, "-c", PREDICT, str(weights), str(tmp_path / "one.png"), "-batch_size=3"]
    said = refusal(run_command(command, folder=tmp_path))
    assert said == f"out of memory on GPU 0 (rank 0): {SAID}; lower -batch_size (3)"
