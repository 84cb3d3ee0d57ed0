"""Imports at the first use of a name, so that a client loads no more than its calls need.

A type checker sees ordinary imports instead:

    if TYPE_CHECKING:
        from coordinator.store.client import Store
    else:
        Store = Later("coordinator.store.client", "Store")
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from importlib import import_module
from typing import cast


class Later:
    """Stands for a module, or for a class or function of it, until somebody calls it or asks for a name of it."""

    def __init__(self, module: str, name: str = "") -> None:
        self._later = module, name

    @cached_property
    def _found(self) -> Callable[..., object]:
        module, name = self._later
        found = import_module(module)
        return cast(Callable[..., object], getattr(found, name) if name else found)

    def __call__(self, *args: object, **options: object) -> object:
        return self._found(*args, **options)

    def __getattr__(self, name: str) -> object:
        return getattr(self._found, name)


def handing_on(
    package: str, homes: Mapping[str, Sequence[str]]
) -> tuple[Callable[[str], object], Callable[[], list[str]]]:
    """The `__getattr__` and the `__dir__` of a package that hands on these names of each of its modules."""
    home_of = {name: f"{package}.{module}" for module, names in homes.items() for name in names}

    def find(name: str) -> object:
        if name in home_of:
            return getattr(import_module(home_of[name]), name)
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

    def known() -> list[str]:
        return sorted({*vars(import_module(package)), *home_of})

    return find, known
