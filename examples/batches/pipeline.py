"""Declares a component for each stage of the pipeline. Nodes and beats load it by its name in TASKS_COMPONENTS.

Deliveries, archive and findings lie in `batches/` below TASKS_DATA_DIR, on a disk that all nodes share. Three more
variables are the example's own: BATCHES_EVERY, the seconds between two polls, BATCHES_PATIENCE, the seconds after which
the curator is reminded, and BATCHES_SMTP, the mail server for that.
"""

import os
from dataclasses import replace

from tasks.batches import Failure
from tasks.components import NotYet, Work
from tasks.pipeline import components
from tasks.settings import Settings

from .delivery import Delivery
from .people import TooEarly
from .place import Place
from .stages import AFTERWARDS, STAGES, Stage

VERSION = "1.0"
PLACE = Place(
    Settings.from_environment().data_dir / "batches",
    patience=float(os.environ.get("BATCHES_PATIENCE", "86400")),
    smtp=os.environ.get("BATCHES_SMTP", ""),
)


def declare(stage: Stage) -> None:
    """A disk that is away or full is an infrastructure error: the work is retried, and no defect is stored."""

    @components.declare(
        stage.component,
        VERSION,
        event=stage.event,
        past=stage.past,
        future=stage.future,
        old=stage.old,
        simultaneous_processes=stage.at_once,
        time_limit=3600,
        infrastructure=[OSError],
        every=float(os.environ.get("BATCHES_EVERY", "60")),
    )
    def function(work: Work) -> list[Failure]:
        try:
            return stage.work(Delivery(work.directory), replace(PLACE, check=work.check))
        except TooEarly as error:
            raise NotYet(str(error)) from error


for one in (*STAGES, *AFTERWARDS):
    declare(one)
