"""Errors of drawn volumes are those of the volumes as often as they are drawn."""

import numpy as np
import pytest

from paddlevit_dist.core.tasks.prediction import PredictionRecord
from paddlevit_dist.volumes.geometry import VolumeGeometry
from paddlevit_dist.volumes.landmarks import prediction
from paddlevit_dist.volumes.landmarks.metrics import LandmarkMetrics, build_rows
from paddlevit_dist.volumes.landmarks.prediction import LandmarkWriter
from paddlevit_dist.volumes.landmarks.results import LandmarkGroundTruth, LandmarkPrediction


def test_errors_of_a_draw_are_those_of_repeated_volumes():
    generator = np.random.default_rng(0)
    errors = np.where(generator.random((8, 3)) < 0.2, np.nan, generator.gamma(2.0, 1.2, (8, 3)))
    errors[:, 2] = np.nan
    metrics = LandmarkMetrics(["a", "b", "c"])
    for row in errors:
        metrics.update(row)
    weights = generator.integers(0, 3, (10, 8))
    found = metrics.bootstrap_values(metrics.per_sample(), weights.astype(float))
    for draw, counts in enumerate(weights):
        again = LandmarkMetrics(["a", "b", "c"])
        for row in np.repeat(errors, counts, axis=0):
            again.update(row)
        expected = {name: v for name, v in again.compute(again.state).items() if not name.endswith("landmarks")}
        names = {name for name, column in found.items() if not np.isnan(column[draw])}
        assert names == set(expected)
        assert {name: found[name][draw] for name in names} == pytest.approx(expected)


def test_tables_of_volumes_and_landmarks():
    metrics, places = LandmarkMetrics(["a", "b"]), np.arange(14.0).reshape(2, 7)
    metrics.update(np.array([1.0, 2.25]), places, "RAS")
    metrics.update(np.array([np.nan, 3.25]))
    table = metrics.per_sample()
    columns = metrics.columns(table)
    assert list(metrics.to_sample_table(table).arrays) == ["sums"]  # positions are in the table for people only
    expected = {"mre_mm": [1.625, 3.25], "sd_mm": [0.625, 0]}
    expected |= {
        f"sdr_{radius}mm": [share, end]
        for radius, share, end in ((2, 50, 0), (2.5, 100, 0), (3, 100, 0), (4, 100, 100))
    }
    for number, (name, errors) in enumerate({"a": [1.0, np.nan], "b": [2.25, 3.25]}.items()):
        expected[f"{name} error_mm"] = errors
        for place, what in enumerate(("x_mm", "y_mm", "z_mm", "true_x_mm", "true_y_mm", "true_z_mm", "confidence")):
            expected[f"{name} {what}"] = [places[number, place], np.nan]
    assert list(columns) == [*expected, "world"] and columns["world"] == ["RAS", ""]
    for name, values in expected.items():
        np.testing.assert_allclose(columns[name], values, err_msg=name)
    rates = [f"sdr_{radius}mm" for radius in (2, 2.5, 3, 4)]
    counts = {"": 3, "a ": 1, "b ": 2}
    assert metrics.declare(table).rates == {f"{name}{rate}": n for name, n in counts.items() for rate in rates}
    assert build_rows(metrics.rows()["sums"], ["a", "b"]) == [
        ["a", "1", "0", "100", "100", "100", "100", "1"],
        ["b", "2.75", "0.5", "0", "50", "50", "100", "2"],
        ["all", "2.16667", "0.920447", "33.3333", "66.6667", "66.6667", "100", "3"],
    ]


def test_an_evaluation_without_any_landmark_and_its_draws_define_nothing():
    metrics = LandmarkMetrics(["a", "b"])
    metrics.update(np.full(2, np.nan))
    values, table = metrics.compute({}), metrics.per_sample()
    assert values == {"landmarks": 0} and {"mre_mm", "a mre_mm", "sdr_2mm"} <= {*metrics.find_undefined(values)}
    assert metrics.summary(values) == "mre nan mm sd nan mm sdr 2 mm nan 2.5 mm nan 3 mm nan 4 mm nan"
    drawn = metrics.bootstrap_values(table, np.ones((3, 1)))
    assert np.isnan(list(drawn.values())).all() and drawn["b mre_mm"].shape == (3,)
    assert metrics.declare(table).rates == {} and build_rows(metrics.rows()["sums"], ["a", "b"]) == []


def test_written_pictures_and_lines(tmp_path, monkeypatch):
    drawn = []
    monkeypatch.setattr(
        prediction,
        "orthogonal_slices",
        lambda *given, **named: drawn.append((given, named)) or np.zeros((1, 1, 3), np.uint8),
    )
    geometry = VolumeGeometry((2, 3, 4), np.diag([2.0, 3.0, 4.0, 1.0]))
    found = LandmarkPrediction(0, geometry, np.array([(1.0, 2, 3), (0, 1, 2)]), np.array([0.5, 1]), np.zeros((2, 3, 4)))
    writer = LandmarkWriter(tmp_path, ["a", "b"], [("case", "lps")])
    for truth in (None, LandmarkGroundTruth(np.array([1.5, np.nan]), np.ones((2, 3)))):
        assert writer.write(0, found, truth) == {
            "fcsv": "case.fcsv",
            "mrk_json": "case.mrk.json",
            "picture": "case.png",
        }
        given, named = drawn.pop()
        assert given[0].tolist() == found.volume.tolist() and list(given[1]) == [4, 3, 2] and given[2] is found.voxels
        assert given[3] is (truth and truth.places) and named == {"shows_sides": True, "names": ["a", "b"]}
        rows = writer.summarize(0, found, truth)
        lines = writer.finish([PredictionRecord(0, [], summary=rows)])
        assert lines[-1] == f"point lists for Slicer (.fcsv, .mrk.json) and an image of each volume are in {tmp_path}"
    assert rows == [
        ["case", "a", "-6.0000", "-6.0000", "4.0000", "0.5000", "1.5000", "LPS"],
        ["case", "b", "-4.0000", "-3.0000", "0.0000", "1.0000", "", "LPS"],
    ]
    assert lines[:-1] == [f"wrote 2 positions in world millimeters (LPS) to {tmp_path}"]
    both = LandmarkWriter(tmp_path, ["a", "b"], [("near", "ras"), ("case", "lps"), ("far", "ras")])
    kept = [PredictionRecord(0, [], summary=both.summarize(number, found, truth)) for number in range(3)]
    assert both.finish(kept)[0] == f"wrote 6 positions in world millimeters (LPS and RAS) to {tmp_path}"
    lines = (tmp_path / "landmarks.csv").read_text().splitlines()
    assert [line.split(",")[0] for line in lines] == ["case", *["case"] * 2, *["far"] * 2, *["near"] * 2]
    assert LandmarkWriter(tmp_path, ["a"], []).finish([]) == []
