"""Seed what a user's code draws random numbers from.

This package draws from generators that it passes on. A user's code may also draw from the generators of libraries, and
from its own objects, such as transforms of Albumentations. Forked loader processes begin with equal copies of all.
"""

import collections
import functools
import itertools
import os
import random
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np

from ..registry.required_methods import is_builtin

#: held from seeding the libraries until a user's code has drawn, in a process in which a thread reads samples
drawing = threading.RLock()  # a sample may read others

_SEEDS = 1 << 32
_LONGEST = 64  # values of a list or a dictionary that are looked at: paths of samples are not
_DEEPEST, _OF_VARIABLES = 6, 4  # levels below a dataset, and the level of a variable of a module
_MOST = 10_000  # values that are looked at in all
_PLAIN = (str, bytes, bool, int, float, complex, np.ndarray, np.generic, os.PathLike, type, ModuleType, FunctionType)
_GENERATORS = (np.random.Generator, np.random.RandomState, random.Random)
_SEEDED = ("set_random_seed", "set_random_state", "manual_seed")  # of Albumentations; of MONAI; of PyTorch's generators


def seed_libraries(seed: int, with_paddle: bool = True) -> None:
    """Seed the generators of NumPy, of ``random``, and on the CPU of PyTorch and Paddle, if they are imported.

    GPUs have generators of their own, which a forked process must not touch.
    """
    np.random.seed(seed)
    random.seed(seed)
    if (torch := sys.modules.get("torch")) is not None:
        torch.default_generator.manual_seed(seed)
    if with_paddle and (paddle := sys.modules.get("paddle")) is not None:
        paddle.framework.core.default_cpu_generator().manual_seed(seed)


class OwnRandomness:
    """The random numbers that a user's code draws while it reads samples, or collates them.

    Objects that draw are found in the attributes of a user's samples, dataset, transform and task, and in the variables
    of their modules: generators of NumPy and ``random``, and what has a method ``set_random_seed``,
    ``set_random_state`` or ``manual_seed``.

    Args:
        samples: transformed samples.
        collate: combines them to a batch; None: they are read alone.
    """

    def __init__(self, samples: Any, collate: Any = None) -> None:
        self._roots = list(_list_own(samples, collate))
        self._objects: list[Any] | None = None  # found at the first reading, in the process that reads

    def read(self, samples: Any, index: int, make_generator: Callable[[], np.random.Generator]) -> Any:
        """Return ``samples.sample(index, generator)`` after libraries and objects were seeded by an equal generator."""
        if not self._roots:
            return samples.sample(index, make_generator())
        paddle = sys.modules.get("paddle")
        if paddle is not None and paddle.io.get_worker_info() is not None:
            return self._read_seeded(samples, index, make_generator, with_paddle=True)
        with drawing:  # a thread reads: Paddle's generator is that of the training
            return self._read_seeded(samples, index, make_generator, with_paddle=False)

    def _read_seeded(
        self, samples: Any, index: int, make_generator: Callable[[], np.random.Generator], with_paddle: bool
    ) -> Any:
        known = self._objects
        objects = self._objects = self._find() if known is None else known
        seed = int(make_generator().integers(_SEEDS))
        seed_libraries(seed, with_paddle)
        seed_objects(objects, seed)
        found = samples.sample(index, make_generator())
        if known is None:
            self._objects = self._find()
            if not {*map(id, self._objects)} <= {
                *map(id, objects)
            }:  # such as a transform that is made at the first reading
                return self._read_seeded(samples, index, make_generator, with_paddle)
        return found

    def _find(self) -> list[Any]:
        modules = {id(module): module for root in self._roots for module in _list_modules(type(root))}
        variables = [list(vars(module).values()) for module in modules.values()]
        return list(_find_drawing(self._roots, itertools.chain.from_iterable(variables)))

    def __getstate__(self) -> Any:
        return {**self.__dict__, "_objects": None}


def seed_objects(objects: Iterable[Any], seed: int) -> None:
    """Seed objects that draw random numbers, each with another number that follows from ``seed``."""
    numbers = np.random.default_rng(seed)
    for value in objects:
        number = int(numbers.integers(1 << 31))
        if isinstance(value, np.random.Generator):
            value.bit_generator.state = type(value.bit_generator)(number).state
        elif isinstance(value, (np.random.RandomState, random.Random)):
            value.seed(number)
        elif hasattr(value, "set_random_seed") and hasattr(value, "set_random_state"):
            # One seed for all transforms of Albumentations would give them equal draws.
            value.set_random_state(np.random.default_rng(number), random.Random(number))
        else:
            getattr(value, next(name for name in _SEEDED if hasattr(value, name)))(number)


def _list_own(samples: Any, collate: Any) -> Iterator[Any]:
    """Yield a user's objects among samples, their transform, the datasets that they are read from, and the task."""
    task = getattr(collate, "task", getattr(collate, "__self__", None))
    method = getattr(type(task), "collate", None)
    if method is not None and not is_builtin(method):
        yield task
    value, seen = samples, set[int]()
    while value is not None and id(value) not in seen:
        seen.add(id(value))
        attributes = getattr(value, "__dict__", {})
        if "wrapped_dataset" in attributes:  # an adapter
            value = attributes["wrapped_dataset"]
            continue
        parts = value, attributes.get("user_object"), attributes.get("transform")
        yield from (each for each in parts if each is not None and not is_builtin(type(each)))
        value = attributes.get("samples", attributes.get("dataset"))  # of samples that wrap others


def _list_modules(cls: type) -> Iterator[ModuleType]:
    """Yield a class's module, then the loaded modules of its package, or of its folder if it is in no package."""
    own = sys.modules.get(cls.__module__)
    package, folder = cls.__module__.partition(".")[0], os.path.dirname(getattr(own, "__file__", None) or "")
    if package in ("builtins", "paddle"):
        return
    if own is not None:
        yield own  # first: of a large package not all values are looked at
    is_alone = package == cls.__module__ and folder and "site-packages" not in folder
    for name, module in sorted(sys.modules.items()):
        is_near = is_alone and os.path.dirname(getattr(module, "__file__", None) or "") == folder
        if is_near or name.partition(".")[0] == package:
            yield module


def _find_drawing(roots: Iterable[Any], variables: Iterable[Any]) -> Iterator[Any]:
    """Yield the objects that draw random numbers among both, and in what these hold."""
    seen: set[int] = set()
    for values, level in ((roots, 0), (variables, _OF_VARIABLES)):  # a large package may have more than _MOST variables
        queue = collections.deque((value, level) for value in values)
        while queue and len(seen) < _MOST:
            value, depth = queue.popleft()
            if value is None or isinstance(value, _PLAIN) or id(value) in seen:
                continue
            seen.add(id(value))
            draws = isinstance(value, _GENERATORS) and value is not np.random.mtrand._rand  # that of np.random.seed
            if draws or any(hasattr(type(value), name) for name in _SEEDED):
                yield value
                if depth:  # it seeds its parts; a dataset or a task may have others
                    continue
            if depth < _DEEPEST:
                queue.extend((part, depth + 1) for part in _list_parts(value))


def _list_parts(value: Any) -> Iterable[Any]:
    if isinstance(value, Mapping):
        return itertools.islice(value.values(), _LONGEST)
    if isinstance(value, (list, tuple)):
        return value[:_LONGEST]
    if isinstance(value, functools.partial):
        return value.func, *value.args, *value.keywords.values()
    if isinstance(value, MethodType):
        return (value.__self__,)
    return () if is_builtin(type(value)) else getattr(value, "__dict__", {}).values()
