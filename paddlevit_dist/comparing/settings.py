"""The keys of a training with several seeds."""

from .. import wings
from ..config.key import AT_LEAST_1, Given, Range, Table, optional
from ..runtime.errors import UserError

_KEYS = (
    optional(
        "SEEDS",
        "int",
        "train this many times, with SEED, SEED + 1 and so on, in folders of SAVE; the same command again continues",
        Range(low=2, high=1000),
    ),
    optional(
        "SEEDS_AT_ONCE",
        "int",
        "SEEDS: how many of them are trained side by side; None: as many as GPUs are enough for, on a CPU one",
        AT_LEAST_1,
    ),
)


def _check(given: Given) -> list[str]:
    values = given.values
    if values.SEEDS is None:
        if values.SEEDS_AT_ONCE is not None:
            return [f"{given['SEEDS_AT_ONCE']}: no effect: it is for several seeds: add -seeds=N"]
        return []
    for name in ("EVAL", *wings.table("JOBS")):
        if name != "SEEDS" and values.get(name):
            raise UserError(f"{given['SEEDS']} and {given[name]}: -seeds trains; leave one of them out")
    if values.MODEL.RESUME not in (None, "auto"):
        raise UserError(
            f"{given['SEEDS']} and {given['MODEL.RESUME']}: that is one run; a group of seeds continues by itself with "
            "the same command: leave -resume out"
        )
    return []


TABLE = Table(_KEYS, training=("SEEDS", "SEEDS_AT_ONCE"), effects={"start": ("SEEDS", "SEEDS_AT_ONCE")}, check=_check)
