"""Color and height alone do not give the classes of the embedded rooms away."""

from benchmarks.color_height_baseline import baseline


def test_color_and_height_alone_reach_little():
    best, _ = baseline(train_rooms=40, val_rooms=15, spacing_m=0.06)
    assert best <= 0.2
