"""Random settings of a recipe, also wrong ones, through ``settings.load``: they are merged, or refused in one line.

``python -m support.fuzz.settings RECIPE SEED CASE`` in tests/ repeats a case and prints what came of it.
"""

import math
import random
import sys
import tempfile
import traceback
from pathlib import Path
from typing import Any, NamedTuple

from paddlevit_dist import UserError
from paddlevit_dist.core.registry.lookup import resolve
from paddlevit_dist.core.settings import Configuration, dump_yaml, load, recipe_folder
from paddlevit_dist.core.settings.command_line import parse_value
from paddlevit_dist.core.settings.key import Key
from paddlevit_dist.core.settings.table import COMMAND_LINE, DERIVED, find_tables, get_value, index_keys, leaves

# A recipe of each task, and of each kind of its networks.
RECIPES = (
    "vit_digits vit_base_patch16_224_finetune resnet50 probe_linear probe_knn detr_shapes dfine_shapes "
    "mask_rcnn_shapes rtdetrv2_r18vd_coco segformer_b0_shapes segformer_b0_cityscapes minkunet14_synthetic_rooms "
    "minkunet34c_nuscenes pointgroup_synthetic_rooms mink_classifier_solids landmark_unet3d volume_unet3d_phantoms"
).split()
STRANGE = (
    "nan inf -inf -1 0 1e400 0x10 1_0 ٣ None null ~ x '' [] [[1]] {a: 1} [1,2,3,4,5,6,7] [1,,2] true auto é "
    "1e-320 2147483648 -0.0 [nan] , : # & *"
).split() + ["9" * 30, " ", "a b", "\t", "[1, 'a, b']"]
_NOT_READ = "DATA.DATA_PATH", "TASK", "BASE", "IMPORTS"  # another configuration than the recipe's, or files


class Outcome(NamedTuple):
    """What came of a case: ``fault`` is empty if all is well."""

    words: list[str]  # of the command line
    is_loaded: bool
    fault: str


def draw_words(recipe: str, seed: int, case: int) -> list[str]:
    """Draw one to five keys that the recipe's run reads, each with a value that it allows or a strange one."""
    path = f"-cfg={recipe_folder() / recipe}.yaml"
    generator = random.Random(f"{seed} {recipe} {case}")
    known = {name: key for name, key in index_keys(find_tables(load([path]).values)).items() if name not in _NOT_READ}
    words = [path]
    for name in generator.sample(sorted(known), generator.randint(1, 5)):
        words += [name, _draw_value(known[name], generator)]
    return words


def _draw_value(key: Key, generator: random.Random) -> str:
    if generator.random() < 0.2:
        return generator.choice(STRANGE)
    if key.optional and generator.random() < 0.1:
        return "None"
    if key.words and generator.random() < 0.3:
        return generator.choice(key.words)
    if key.many or (key.or_many and generator.random() < 0.5):
        number = key.length if key.length is not None and generator.random() < 0.9 else generator.randint(0, 4)
        return f"[{','.join(_draw_item(key, generator) for _ in range(number))}]"
    return _draw_item(key, generator)


def _draw_item(key: Key, generator: random.Random) -> str:
    if key.choices:
        return str(generator.choice(key.choices))
    if key.kind == "bool":
        return generator.choice(["true", "false"])
    if key.kind == "switch":
        return generator.choice(["true", "false", "original"])
    if key.kind in ("text", "path"):
        return generator.choice([str(key.default), "other", "vit", "sgd", "./a.yaml", "http://localhost/a"])
    low, high = (key.within.low, key.within.high) if key.within else (-math.inf, math.inf)
    low = max(low, -10.0)
    high = max(low, min(high, low + generator.choice([1, 10, 1000])))
    number = generator.choice([low, high, generator.uniform(low, high), generator.uniform(low, high)])
    return str(round(number)) if key.kind == "int" else f"{number:.4g}"


def try_words(words: list[str], folder: Path) -> Outcome:
    """Load the words, and what is written for the result: the same settings must come out."""
    try:
        loaded = load(words)
    except UserError as error:
        message = str(error)
        is_named = DERIVED in message or any(part in message for name in words[1::2] for part in _find_parts(name))
        is_named |= message.startswith(tuple(f"{value} does not exist" for value in words[2::2]))  # it is a path
        fault = "several lines" if "\n" in message else "" if is_named else "names no key"
        return Outcome(words, False, fault and f"{fault}: {message}")
    except BaseException:
        return Outcome(words, False, traceback.format_exc())
    return Outcome(words, True, _find_fault(loaded, words, folder))


def _find_parts(name: str) -> list[str]:
    """Find what a message may call a key: its name, its last part, and its section if that is not a large one."""
    section, _, last = name.rpartition(".")
    return [name, last, *([section] if "." in section else [])]


def _find_fault(loaded: Configuration, words: list[str], folder: Path) -> str:
    """Find a value that is not what was set, or that another order of the words or its own file would change."""
    known, values = index_keys(find_tables(loaded.values)), loaded.values
    for name, text in zip(words[1::2], words[2::2]):
        value = get_value(values, name)
        if loaded.sources[name] == COMMAND_LINE and value != known[name].parse(parse_value(name, text, None)):
            return f"{name} {text} became {value}"
    pairs = list(zip(words[1::2], words[2::2]))
    turned = [words[0], *(word for pair in reversed(pairs) for word in pair)]
    (file := folder / "config.yaml").write_text(dump_yaml(values), encoding="utf-8")
    for others, where in ((turned, "in another order"), ([f"-cfg={file}"], "from its file")):
        try:
            again = load(others)
        except BaseException:
            return f"{where}: {traceback.format_exc()}"
        before, now = leaves(values), leaves(again.values)
        if where == "from its file" and not _is_network(before["MODEL.NAME"]):  # a label there, which no run writes
            del before["MODEL.NAME"]
        changed = [f"{name} {before.get(name)} became {now.get(name)}" for name in before if before[name] != now[name]]
        if changed:
            return f"{where}: {'; '.join(changed)}"
    return ""


def _is_network(name: Any) -> bool:
    try:
        resolve("model", str(name))
    except UserError:
        return False
    return True


def find_faults(recipe: str, seed: int, count: int, folder: Path) -> list[str]:
    """Try the cases 0 to ``count - 1`` of a recipe, and describe each fault with the command that repeats it.

    Some of many have to be merged, and some refused: otherwise nothing is tried.
    """
    faults, loaded = [], 0
    for case in range(count):
        outcome = try_words(draw_words(recipe, seed, case), folder)
        loaded += outcome.is_loaded
        if outcome.fault:
            faults.append(f"python -m support.fuzz.settings {recipe} {seed} {case}\n{outcome.words}\n{outcome.fault}")
    if not 0 < loaded < count:
        faults.append(f"{recipe}: {loaded} of {count} cases were merged")
    return faults


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        outcome = try_words(draw_words(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])), Path(folder))
    print(*map(repr, outcome.words), "\nmerged" if outcome.is_loaded else "\nrefused", "\n" + outcome.fault)
