"""Two and three processes give the scores of one, and the same files."""

import pytest
from support.processes import run_together
from support.trainings import small_detections


@pytest.mark.parametrize("added", [[], ["DETECTION.WINDOW", "[16, 20]", "DETECTION.FLIP", "True"]])
def test_one_two_and_three_processes_give_the_same_scores_and_the_same_file(tmp_path, added):
    few = ["DATA.SHAPES.OBJECTS_PER_IMAGE", "[0, 1]"]  # many images have no boxes
    small_detections.train(str(tmp_path / "one"), ["-batch_size=4", *few])
    alone = small_detections.evaluate(str(tmp_path / "by_1"), str(tmp_path / "one"), added)
    files = []
    for number in (2, 3):
        words = [f"-per_sample={tmp_path / f'by_{number}.csv'}", *added]
        given = (str(tmp_path / f"by_{number}"), str(tmp_path / "one"), words)
        calls = {"evaluation": ("support.trainings.small_detections:evaluate", given)}
        found = run_together(calls, processes=number, timeout=600)["evaluation"]
        assert found == [alone] * number
        table = (tmp_path / f"by_{number}.csv").read_bytes()
        assert table.count(b"\r\n") == 10
        files.append((table, (tmp_path / f"by_{number}" / "predictions" / "results.json").read_bytes()))
    assert files[0] == files[1]
