"""Chooses combinations of settings that together contain every pair of values."""

import itertools
import random

from .values import Combination, Features, Rule, matches

Pair = tuple[tuple[str, str], tuple[str, str]]
NIGHTS = 30  # seeds in a row, such as nights, that share one sequence of combinations
NIGHTLY = 4  # combinations of the sequence that are of each seed: 120 have nearly all pairs of any task
_CANDIDATES = 60
_REFUSED_SHARE = 0.03  # combinations that are to be refused: a few are enough, and they hide the others' pairs


def list_pairs(combination: Combination) -> set[Pair]:
    """List the pairs of values in a combination, features in order of their names."""
    return set(itertools.combinations(sorted(combination.items()), 2))


def list_all_pairs(features: Features, avoided: tuple[Rule, ...]) -> set[Pair]:
    """List all pairs of values but those that a rule excludes whatever the other features are."""
    pairs = set()
    for (first, first_values), (second, second_values) in itertools.combinations(sorted(features.items()), 2):
        for one, other in itertools.product(first_values, second_values):
            if not matches({first: one, second: other}, avoided):
                pairs.add(((first, one), (second, other)))
    return pairs


def skip_earlier(
    features: Features, avoided: tuple[Rule, ...], targets: set[Pair], seed: int, name: str
) -> tuple[set[Pair], random.Random]:
    """Draw the combinations of earlier seeds of the same ``NIGHTS`` again.

    Returns:
        Their pairs, and the generator that draws the first ``NIGHTLY`` combinations of this seed.
    """
    series, night = divmod(seed, NIGHTS)
    generator, covered = random.Random(f"{name} {series}"), set()
    for _ in range(night * NIGHTLY):
        covered |= list_pairs(draw(features, avoided, [targets - covered], {}, generator))
    return covered, generator


def draw(
    features: Features,
    avoided: tuple[Rule, ...],
    missing: list[set[Pair]],
    fixed: Combination,
    generator: random.Random,
) -> Combination:
    """Draw the combination with the most missing pairs among many candidates.

    A third of the features keep their default in each candidate, because a fault can need that others are off.

    Args:
        avoided: a combination that matches one of these rules is rarely drawn.
        missing: sets of pairs that no combination has had; those of an earlier set come first.
        fixed: settings of all combinations.
    """

    def make_candidate() -> Combination:
        while True:
            combination = {name: generator.choice(list(values)) for name, values in features.items()}
            for name in generator.sample(list(features), len(features) // 3):
                if name != "model":
                    combination[name] = next(iter(features[name]))
            combination |= fixed
            if not matches(combination, avoided) or generator.random() < _REFUSED_SHARE:
                return combination

    candidates = [make_candidate() for _ in range(_CANDIDATES)]
    wanted = sorted(next(filter(None, missing), set()))
    for pair in generator.sample(wanted, min(len(wanted), _CANDIDATES // 2)):  # late, a random candidate rarely has one
        candidate = {**generator.choice(candidates), **dict(pair), **fixed}
        if not matches(candidate, avoided):
            candidates.append(candidate)
    return max(candidates, key=lambda candidate: [len(pairs & list_pairs(candidate)) for pairs in missing])
