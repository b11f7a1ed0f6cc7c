"""What rows of settings are made of: a value of a feature, a network, a kind of work."""

from typing import NamedTuple

Combination = dict[str, str]  # feature -> value
Rule = dict[str, tuple[str, ...]]  # matches a combination that has one of the values for each of its features


class Value(NamedTuple):
    """One value of a feature.

    Attributes:
        words: what sets it; "{data:NAME}" and "{address:NAME}" stand for the folder and the address of a data set of
            ``materials``, "{base:MODEL}" for weights of a network.
        twin: another value of the feature that must give the same result; empty if none does.
        agreement: how equal: "bits", "near" (1e-3 of what training changed) or "rounding" (5e-3 of it).
    """

    words: str = ""
    twin: str = ""
    agreement: str = "bits"


Features = dict[str, dict[str, Value]]
NONE = {"none": Value()}


class Model(NamedTuple):
    """A network with its recipe.

    Attributes:
        has_batch_norm: its statistics depend on how a batch is split, unless they are synchronized.
        draws: its losses draw random numbers per rank, so that a split changes them.
        has_blocks: its blocks are numbered, as LAYER_DECAY, Muon and LoRA need.
        start: what else the run sets that trains the first weights, so that scores are not all zero.
        exports: it has an exported form.
        exports_coarsely: whose scores are other ones, as it measures masks by the cells of a map.
        has_rows: its metrics have a row for each sample.
    """

    words: str
    has_batch_norm: bool = False
    draws: bool = False
    has_blocks: bool = False
    start: str = "-epochs=1"
    exports: bool = True
    exports_coarsely: bool = False
    has_rows: bool = True


class Task(NamedTuple):
    """A kind of work with its networks and the features that only it has.

    Attributes:
        batch: samples of an update.
        refused: combinations that the guides exclude: exit code 2 and one line, before anything is trained.
        may_be_refused: combinations of which some networks allow and others exclude: both answers are right.
    """

    batch: int
    models: dict[str, Model]
    features: Features
    refused: tuple[Rule, ...] = ()
    may_be_refused: tuple[Rule, ...] = ()


def matches(combination: Combination, rules: tuple[Rule, ...]) -> bool:
    return any(all(combination.get(name) in values for name, values in rule.items()) for rule in rules)
