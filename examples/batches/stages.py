"""The stages of the pipeline: a table. Each names the events for which it waits, and makes one of its own."""

from collections.abc import Callable
from dataclasses import dataclass

from tasks.batches import Failure

from .archive import data_archived, metadata_archived
from .cleaning import leftovers_removed
from .delivery import Delivery
from .images import histogrammed, jpylyzed
from .metadata import editions_relations_generated, metadata_checked
from .people import manual_qa_flagged, warning_email_sent
from .place import Place
from .structure import structure_checked

RECEIVED, APPROVED = "Data_Received", "Roundtrip_Approved"
"""The first event comes with the delivery, the last one from a curator."""


@dataclass(frozen=True)
class Stage:
    """`component`: its name. `past`, `future` and `old` are as in the declaration of a component.

    `at_once`: so many batches it works on at the same time, in the whole fleet.
    """

    component: str
    work: Callable[[Delivery, Place], list[Failure]]
    event: str
    past: tuple[str, ...]
    future: tuple[str, ...] = ()
    old: tuple[str, ...] = ()
    at_once: int = 2


STAGES = (
    Stage("Metadata_Archiver", metadata_archived, "Metadata_Archived", (RECEIVED,)),
    Stage("Data_Archiver", data_archived, "Data_Archived", ("Metadata_Archived",)),
    Stage("Structure_Checker", structure_checked, "Structure_Checked", ("Metadata_Archived", "Data_Archived")),
    Stage("JPylyzer", jpylyzed, "JPylyzed", ("Data_Archived", "Structure_Checked"), at_once=3),
    Stage("Histogrammer", histogrammed, "Histogrammed", ("Data_Archived", "Structure_Checked"), at_once=3),
    Stage("Metadata_Checker", metadata_checked, "Metadata_checked", ("JPylyzed", "Structure_Checked")),
    Stage("Manual_QA_Flagger", manual_qa_flagged, "Manual_QA_Flagged", ("Metadata_checked", "Histogrammed")),
    # Beside them. A batch that changes has its editions made again; a batch that waits too long for a person is told.
    Stage(
        "Editions_Relator",
        editions_relations_generated,
        "Editions_relations_generated",
        ("Metadata_checked",),
        old=("Editions_relations_generated",),
        at_once=1,
    ),
    Stage("Reminder", warning_email_sent, "Warning_Email_Sent", ("Manual_QA_Flagged",), future=(APPROVED,), at_once=1),
)

AFTERWARDS = (
    Stage(
        "Cleaner",
        leftovers_removed,
        "Leftovers_removed",
        (APPROVED, "Manual_QA_Flagged", "Editions_relations_generated"),
        at_once=1,
    ),
)
"""The stages that wait for the curator."""
