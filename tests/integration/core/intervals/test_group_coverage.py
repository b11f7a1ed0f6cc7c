"""Intervals of frames cover the truth only if whole videos are drawn."""

import numpy as np
from unit.core.intervals.test_resampling import FRAMES, VIDEOS

from paddlevit_dist.core.intervals import (
    ClassificationCounts,
    ProportionRecompute,
    bootstrap,
    means,
)


def drawn_videos(generator):
    """Frames of videos of which each is easy or hard, and errors of theirs that agree as much; the share of all
    frames that are right is 80 %."""
    easy = generator.beta(0.8, 0.2, VIDEOS)
    labels, of_video = np.zeros(VIDEOS * FRAMES, int), np.repeat(np.arange(VIDEOS), FRAMES)
    classified = ClassificationCounts(labels, (generator.random(VIDEOS * FRAMES) >= easy[of_video]).astype(int), 1)
    errors = means(
        {"error": np.repeat(generator.normal(5.0, 1.0, VIDEOS), FRAMES) + generator.normal(0, 1, len(labels))}
    )
    recompute = ProportionRecompute(lambda weights: {**classified(weights), **errors(weights)}, classified.rates())
    return recompute, len(labels), of_video


def test_intervals_cover_where_frames_of_a_video_are_alike_only_if_videos_are_drawn():
    generator, sets = np.random.default_rng(7), {"frames": 30, "videos": 100}
    hits = {(name, by): 0 for name in ("top-1", "error") for by in sets}
    for number_of_set in range(100):
        recompute, number, of_video = drawn_videos(generator)
        for by, groups in (("frames", None), ("videos", of_video)):
            if number_of_set >= sets[by]:  # far fewer than 55 % of 30 are seen to be so
                continue
            found = bootstrap(recompute, number, resamples=200, groups=groups)
            for name, truth in (("top-1", 80.0), ("error", 5.0)):
                hits[name, by] += found[name].low <= truth <= found[name].high
    shares = {(name, by): number / sets[by] for (name, by), number in hits.items()}
    assert all(0.89 <= shares[name, "videos"] <= 0.99 for name in ("top-1", "error")), shares
    assert all(shares[name, "frames"] < 0.55 for name in ("top-1", "error")), shares
