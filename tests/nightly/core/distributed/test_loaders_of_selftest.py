"""A self-test stops reading before an epoch ends: the loader processes of its workers end with them."""

from support.processes import run_main
from support.trainings.runs import DIGITS, well

FLAGS = [argument for argument in DIGITS if not argument.startswith(("-num_workers", "-batch_size"))]


def test_a_selftest_with_loader_processes_ends(tmp_path):
    arguments = ["-selftest", "-ngpus=2", "-num_workers=2", "-batch_size=32", f"-output={tmp_path / 'output'}"]
    ended = well(run_main(*FLAGS, *arguments, "TRAIN.REPEATED_AUGMENT", "2", timeout=100))
    assert ended.out.endswith("PASS\n")
