"""Names of checkpoint directories, and the links of a run."""

import pytest

from paddlevit_dist.core.checkpoint.directory_names import find_best_epoch


@pytest.mark.parametrize(
    ("target", "epoch"),
    [
        ("epoch_0012", 12),
        ("./epoch_0012", 12),
        ("../checkpoints/epoch_0012", 12),
        ("{run}/checkpoints/epoch_0012", 12),
        ("../old/epoch_0012", None),  # of another run, copied with its links
        ("/elsewhere/checkpoints/epoch_0012", None),
        ("epoch_0012.bak", None),
        (None, None),
    ],
)
def test_the_best_epoch_is_that_of_a_link_to_the_same_folder(target, epoch, tmp_path):
    run = tmp_path / "run"
    (run / "checkpoints").mkdir(parents=True)
    (run / "old").mkdir()
    if target is not None:
        (run / "checkpoints" / "best").symlink_to(target.format(run=run))
    assert find_best_epoch(run) == epoch
