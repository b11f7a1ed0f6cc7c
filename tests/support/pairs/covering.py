"""Chooses combinations of settings that together contain every pair of values."""

import itertools
import random

from .features import REFUSED, Combination, Features, Rule, matches

Pair = tuple[tuple[str, str], tuple[str, str]]
_CANDIDATES = 60
_REFUSED_SHARE = 0.03  # combinations that are to be refused: a few are enough, and they hide the others' pairs


def list_pairs(combination: Combination) -> set[Pair]:
    """List the pairs of values in a combination, features in order of their names."""
    return set(itertools.combinations(sorted(combination.items()), 2))


def list_all_pairs(features: Features, avoided: list[Rule]) -> set[Pair]:
    """List all pairs of values but those that a rule excludes whatever the other features are."""
    pairs = set()
    for (first, first_values), (second, second_values) in itertools.combinations(sorted(features.items()), 2):
        for one, other in itertools.product(first_values, second_values):
            if not matches({first: one, second: other}, avoided):
                pairs.add(((first, one), (second, other)))
    return pairs


def draw(features: Features, covered: set[Pair], fixed: Combination, generator: random.Random) -> Combination:
    """Draw the combination with the most new pairs among many candidates.

    A third of the features keep their default in each candidate, because a fault can need that others are off.
    """

    def make_candidate() -> Combination:
        while True:
            combination = {name: generator.choice(list(values)) for name, values in features.items()}
            for name in generator.sample(list(features), len(features) // 3):
                if name != "model":
                    combination[name] = next(iter(features[name]))
            combination |= fixed
            if not matches(combination, REFUSED) or generator.random() < _REFUSED_SHARE:
                return combination

    candidates = [make_candidate() for _ in range(_CANDIDATES)]
    missing = sorted(list_all_pairs(features, REFUSED) - covered)
    if missing:  # late in a campaign a random candidate rarely has a new pair
        for pair in generator.sample(missing, min(len(missing), _CANDIDATES // 2)):
            candidate = {**generator.choice(candidates), **dict(pair), **fixed}
            if not matches(candidate, REFUSED):
                candidates.append(candidate)
    return max(candidates, key=lambda candidate: len(list_pairs(candidate) - covered))
