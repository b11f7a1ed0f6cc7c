"""The tables of keys that a run reads: of every run, of its task, and of what users have registered.

A manifest or a registration names the tables; each is imported when it is asked for.
"""

from collections.abc import Iterator
from typing import Any

from ..registry.lookup import find_lineage, find_package
from ..registry.names import REGISTRY
from ..runtime.lazy_names import import_object


def common_tables() -> list[Any]:
    """Return the key tables that every run reads: the engine's first, then the ones of other features."""
    return [*map(import_object, REGISTRY.key_tables)]


def custom_tables(kind: str, name: str) -> list[Any]:
    """Return the tables of the keys that a user has registered with a name."""
    registration = REGISTRY.registrations.get((kind, name))
    return list(registration.keys) if registration is not None and name in REGISTRY.kinds[kind] else []


def find_owners(task: str | None) -> list[str] | None:
    """Return the tasks whose tables and keys a task reads; None if it reads all keys.

    These are the task and, after it, those that its class is derived from, as far as the first that has key tables. If
    none has, the task reads all keys. This imports the class of a user's task.
    """
    if task is None or task in REGISTRY.task_tables:
        return task if task is None else [task]
    import_object(REGISTRY.tasks.get(task))
    lineage = find_lineage(task)
    end = next((number for number, name in enumerate(lineage) if name in REGISTRY.task_tables), None)
    return None if end is None else lineage[: end + 1]


def key_tables(task: str | None = None, dataset: str | None = None, model: str | None = None) -> list[Any]:
    """Return the key tables that a run of ``task`` reads, the engine's first, those for users' keys last.

    All tables are returned for None, or if the task reads all keys.
    """
    owners = find_owners(task)
    if owners is not None:
        chosen = [*(("task", name) for name in owners), ("dataset", dataset), ("model", model)]
        tables = [*REGISTRY.task_tables[owners[-1]]]
    else:
        chosen = list(REGISTRY.registrations)
        tables = [*REGISTRY.built_in_tables, *(table for group in REGISTRY.task_tables.values() for table in group)]
    tables += [table for kind, name in chosen for table in custom_tables(kind, name or "")]
    return list(dict.fromkeys([*common_tables(), *map(import_object, dict.fromkeys(tables))]))


def rule_tables(task: str, dataset: str | None, model: str | None, default_task: str) -> list[Any]:
    """Return the tables whose rules complete the values of a run: those that it reads.

    Rules of different tasks contradict one another. So a task that reads all keys has the rules of ``default_task`` and
    of the keys that it adds.
    """
    if find_owners(task) is not None:
        return key_tables(task, dataset, model)
    return list(dict.fromkeys([*key_tables(default_task, dataset, model), *custom_tables("task", task)]))


def known_tables(task: str | None = None) -> list[Any]:
    """Return the tables whose keys a configuration of ``task`` contains: its own and all of users' names.

    All tables are returned for None, and for a task of a user that names tables: their rules may read keys of others.
    """
    owners = find_owners(task)
    is_of_user = owners is None or find_package("task", owners[-1]) is None
    custom = [table for kind, name in REGISTRY.registrations for table in custom_tables(kind, name)]
    return list(dict.fromkeys([*key_tables(None if is_of_user else task), *custom]))


def iterate_tables() -> Iterator[Any]:
    """Yield every table once, the tables of every run first; each is imported when it is reached."""
    yield from common_tables()
    of_tasks = [*REGISTRY.built_in_tables, *(table for group in REGISTRY.task_tables.values() for table in group)]
    yield from map(import_object, dict.fromkeys(of_tasks))


def list_other_tables(kind: str = "", name: str = "") -> list[Any]:
    """Return all tables but the ones that a user has registered with this name."""
    custom = [table for entry in REGISTRY.registrations if entry != (kind, name) for table in custom_tables(*entry)]
    return [*common_tables(), *map(import_object, REGISTRY.built_in_tables), *custom]


def find_readers(key: str) -> list[tuple[str, str]]:
    """Return kind and name of the tasks and users' entries whose tables contain ``key``."""
    tasks = [
        ("task", task)
        for task, tables in REGISTRY.task_tables.items()
        if any(row.name == key for table in tables for row in import_object(table).keys)
    ]
    custom = [
        entry
        for entry in REGISTRY.registrations
        if any(row.name == key for table in custom_tables(*entry) for row in table.keys)
    ]
    return list(dict.fromkeys([*tasks, *custom]))
