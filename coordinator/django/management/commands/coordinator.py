"""`manage.py coordinator …`: the command `coordinator`, with the project's Celery app."""

from __future__ import annotations

import sys
from argparse import REMAINDER, ArgumentParser

from django.core.exceptions import ImproperlyConfigured
from django.core.management.base import BaseCommand, CommandError

from coordinator.django.project import project
from coordinator.ops.cli.main import cli


class Command(BaseCommand):
    help = "Keyed jobs for Celery: look at them, submit them, and act on them, their lanes and nodes."
    requires_system_checks: tuple[str, ...] = ()

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("words", nargs=REMAINDER)

    def run_from_argv(self, argv: list[str]) -> None:
        """Give all words to `coordinator`, also options and --help, but those of Django in front of its command."""
        words = argv[2:]
        while words and words[0].partition("=")[0] in ("--settings", "--pythonpath"):  # manage.py has read them
            words = words[1 if "=" in words[0] else 2 :]
        try:
            sys.exit(self._run(words, standalone_mode=True))
        except ImproperlyConfigured as error:
            self.stderr.write(f"Error: {error}")
            sys.exit(2)

    def handle(self, *args: object, words: list[str], **options: object) -> None:
        if status := self._run(words, standalone_mode=False):
            raise CommandError(f"coordinator ended with status {status}", returncode=status)

    def _run(self, words: list[str], standalone_mode: bool) -> int:
        given = [] if {"-A", "--app"} & {*words[:1]} else ["-A", project().app_name]
        status = cli.main([*given, *words], prog_name="manage.py coordinator", standalone_mode=standalone_mode)
        return status if isinstance(status, int) else 0
