"""Scenes that a command prepared."""

from paddlevit_dist.points.data.scenes import PreparedScenes
from paddlevit_dist.points.prepare.command import run_scenes


def prepared(tmp_path, capsys, *options):
    """The splits of a store made from tmp_path / raw, and what the command said."""
    run_scenes([str(tmp_path / "raw"), str(tmp_path / "store"), "--workers=1", *options])
    said = capsys.readouterr().out
    lists = {path.stem for path in (tmp_path / "store").glob("*.txt")} - {"classes"}
    return {split: PreparedScenes(str(tmp_path / "store"), split, tmp_path) for split in lists}, said
