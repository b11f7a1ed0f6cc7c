"""Which file of a run has the weights that its scores are of."""

import pytest

from paddlevit_dist.checkpoint.weights import evaluated_weights


@pytest.fixture
def run(tmp_path, monkeypatch):
    """A run whose best epoch is not its last, as ``run`` in the working directory; nothing reads its empty files."""
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "run" / "checkpoints"
    for epoch in (1, 2):
        (folder / f"epoch_{epoch:04d}").mkdir(parents=True)
        (folder / f"epoch_{epoch:04d}" / "model.pdparams").touch()
    (folder / "best").symlink_to("epoch_0001")
    (folder / "last").symlink_to("epoch_0002")
    return folder


@pytest.mark.parametrize("source, link", [("run", "best"), ("./run", "best"), ("run/checkpoints/last", "last")])
def test_scores_are_of_the_average_where_there_is_one(run, source, link):
    found = evaluated_weights(source)
    assert found == (f"run/checkpoints/{link}" if link == "best" else source)
    (run / link / "model_ema.pdparams").touch()
    assert evaluated_weights(source) == f"run/checkpoints/{link}/model_ema.pdparams"


@pytest.mark.parametrize("source", ["vit_tiny", "./vit_tiny", "run/checkpoints/best/model.pdparams", "https://a.org/b"])
def test_other_weights_keep_their_spelling(run, source):
    (run / "best" / "model_ema.pdparams").touch()
    assert evaluated_weights(source) == source
