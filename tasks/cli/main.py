"""Adds the service's commands to `coordinator`. Each command's module is imported when the command is called, to keep
`--help` fast.
"""

from importlib import import_module
from typing import TYPE_CHECKING

import click

from coordinator import Extension, Why
from coordinator.extending import Later
from tasks.app import coordinator, documents
from tasks.cli.extension import batches, errors

if TYPE_CHECKING:
    from collections.abc import Iterable

    from coordinator import Finding
    from coordinator.extending import Pages
    from tasks.components.registry import Registry

HELP = {
    "up": "Run the service on this machine until Ctrl-C: Redis (unless COORDINATOR_URL is set), nodes, beats, Flower.",
    "refresh": "Synchronize MEMBER now.",
    "members": "Show each member, and each that left: its state, objects, failures, last and next run.",
    "catalog": "Show the objects harvested from a member that it still has.",
    "events": "Show what became of objects, in the order in which it was stored: new, changed, archived, gone.",
    "nodelist": "The list of members.",
    "web": "Serve member nodes over HTTP, until Ctrl-C: they request the harvest of their objects, and read the list.",
}


def _command(name: str) -> Later:
    """Make a command that is imported from `tasks.cli.<name>` when it is called."""

    def load() -> click.Command:
        command: click.Command = getattr(import_module(f"tasks.cli.{name}"), name)
        return command

    return Later(name, HELP[name], load)


def _why(member: str) -> Why:
    from tasks import members

    return members.why(member)


def _pages() -> "Pages":
    from tasks.pages import members

    return members.pages()


def _findings() -> "Iterable[Finding]":
    from tasks.doctor import findings

    return findings()


def _components() -> "Registry":
    from tasks.pipeline import components

    return components


def _members_app() -> object:
    from tasks.web import Callers, MembersApp  # imported here, since no command needs the web server

    return MembersApp(Callers())


coordinator.extend(
    Extension(
        "service",
        commands=[_command(name) for name in HELP],
        why={"member": _why},
        findings=_findings,
        errors=errors,
        metrics=documents.metrics,
        pages=_pages,
        mounts={"/cn": _members_app},
    )
)
coordinator.extend(batches(_components))
