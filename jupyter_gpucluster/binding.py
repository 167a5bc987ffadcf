"""What a job left behind comes back into the notebook: names are bound as if the cell had run there (DESIGN section 4)."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterable, Mapping, MutableMapping
from dataclasses import dataclass, field
from typing import Any

from gpucluster.api.schemas import ResultManifest
from gpucluster.worker import namespace, salvage


@dataclass(frozen=True)
class Bound:
    """What became of a result.

    bound    names that were bound, `changed` those of them that are inputs changed in place
    aliases  other names of an input that was changed, bound to the new object too: name -> that input
    deleted  names that the cell deleted, and are gone here, too
    missing  names that stay as they were, with the reason
    value    of the cell's last expression; None also when there is none (`has_value`)
    """

    bound: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    missing: dict[str, str] = field(default_factory=dict)
    has_value: bool = False
    value: Any = None
    notes: tuple[str, ...] = ()
    aliases: dict[str, str] = field(default_factory=dict)
    deleted: tuple[str, ...] = ()


def bind_results(
    manifest: ResultManifest,
    fetch: Callable[[str], Any],
    user_ns: MutableMapping[str, Any],
    names: Collection[str] | None = None,
    *,
    home: dict[str, Any] | None = None,
) -> Bound:
    """Unpickle a result and bind its names (or only `names`) in `user_ns`; `fetch` gives a blob's bytes by SHA-256.

    A name that cannot be made here, because its module is missing for example, stays as it was and is told in `missing`;
    it does not keep the others. `home` is the namespace in which functions that come back live: by default that of the
    running IPython, else `user_ns` if it is a module's, else that of `__main__`. Raises CannotLoad when the result as a
    whole is damaged.
    """
    namespace.bind(_home(user_ns) if home is None else home)
    values: dict[str, Any] = {}
    failed: dict[str, str] = {}
    if manifest.pickle is not None:
        values, failed = salvage.load_each(fetch(manifest.pickle), [fetch(sha) for sha in manifest.buffers])
    missing = {**manifest.missing, **failed}
    has_value = manifest.has_value and manifest.value_key in values
    value = values.pop(manifest.value_key, None) if manifest.has_value else None
    wanted = [name for name in values if names is None or name in names]
    aliases: dict[str, str] = {}
    for name in wanted:
        if name in manifest.changed:
            aliases.update(dict.fromkeys(_other_names(user_ns, name, values), name))
    for alias, name in aliases.items():
        user_ns[alias] = values[name]
    for name in wanted:
        user_ns[name] = values[name]
    deleted = tuple(name for name in manifest.deleted if names is None and name in user_ns)
    for name in deleted:
        del user_ns[name]
    return Bound(
        bound=tuple(wanted),
        changed=tuple(name for name in manifest.changed if name in wanted),
        missing={name: reason for name, reason in missing.items() if names is None or name in names},
        has_value=has_value,
        value=value,
        notes=manifest.notes,
        aliases=aliases,
        deleted=deleted,
    )


def _home(user_ns: MutableMapping[str, Any]) -> Any:
    from IPython.core.getipython import get_ipython

    shell = get_ipython()
    if shell is not None:
        return shell.user_ns
    return user_ns if "__name__" in user_ns else sys.modules["__main__"].__dict__


def _other_names(ns: Mapping[str, Any], name: str, values: Mapping[str, Any]) -> list[str]:
    """Names that stand for the very object that `name` stood for: after the cell they stand for the changed one."""
    old = ns.get(name)
    if old is None or isinstance(old, (int, float, complex, str, bytes, tuple, frozenset)):
        return []
    return [
        other
        for other, value in ns.items()
        if value is old and other not in values and not _is_history(other)
    ]


def _is_history(name: str) -> bool:
    return name.strip("_") == "" or (name.startswith("_") and name[1:].isdigit())


def summary_line(
    inputs: Iterable[str] = (),
    outputs: Iterable[str] = (),
    changed: Iterable[str] = (),
    missing: Iterable[str] = (),
    deleted: Iterable[str] = (),
    limit: int = 8,
) -> str:
    """One line about the names of a cell: `in: net, X · out: history · changed: net`. Long lists are cut after `limit`."""
    changed = list(changed)
    groups = {
        "in": list(inputs),
        "out": [name for name in outputs if name not in changed],
        "changed": changed,
        "deleted": list(deleted),
        "not back": list(missing),
    }
    return " · ".join(f"{word}: {_listed(names, limit)}" for word, names in groups.items() if names)


def _listed(names: list[str], limit: int) -> str:
    shown = ", ".join(names[:limit])
    return shown if len(names) <= limit else f"{shown}, +{len(names) - limit}"
