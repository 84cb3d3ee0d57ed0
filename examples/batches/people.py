"""Manual_QA_Flagged and Warning_Email_Sent: the pages that a curator has to check, and a reminder."""

import json
import smtplib
import time
from datetime import UTC, datetime
from email.message import EmailMessage
from email.policy import SMTP
from email.utils import format_datetime
from typing import Any
from urllib.parse import urlsplit

from tasks.batches import Failure

from .delivery import Delivery
from .files import make_folder
from .images import HISTOGRAM
from .place import Place

BLANK = 0.98
"""A page is flagged where one level has so great a share of its pixels, or where nearly all of them are dark."""
DARK = 64
SAMPLE = 10
"""A curator also checks each tenth page, from the first one on."""
CURATOR = "curator@library.example"
SILENCE = 30.0
"""Seconds without an answer, after which a mail server counts as away."""


class TooEarly(Exception):
    """It is too early for a reminder."""


def manual_qa_flagged(delivery: Delivery, place: Place) -> list[Failure]:
    """Mark the pages that a curator has to check. A batch that is marked already keeps its date."""
    failures, marked = list[Failure](), list[dict[str, str]]()
    for number, page in enumerate(delivery.pages()):
        try:
            told = json.loads((place.histograms / delivery.item / (page + HISTOGRAM)).read_bytes())
        except (FileNotFoundError, ValueError) as error:
            failures.append(Failure(page, "histogram", "manual-qa", "the page has no histogram", str(error)))
            continue
        why = _suspicion(told) or ("a sample" if number % SAMPLE == 0 else "")
        marked += [{"page": page, "why": why}] if why else []
    if not failures:
        before = _flag(delivery, place)
        since = before["since"] if before else time.time()
        text = json.dumps({"item": delivery.item, "since": since, "pages": marked}, indent=1)
        place.put(place.flagged / f"{delivery.item}.json", text.encode())
    return failures


def warning_email_sent(delivery: Delivery, place: Place) -> list[Failure]:
    """Remind the curator of a batch that has waited too long for approval. Raises TooEarly before that.

    The message's name follows from the batch and its date, so a second run puts no second message into the Maildir. A
    mail server may be given one twice where the run was killed between sending and its note; both have one Message-ID.
    """
    flag = _flag(delivery, place)
    if flag is None:
        return [Failure(delivery.item, "flag", "warning-email", "the batch is not flagged for a person")]
    left = flag["since"] + place.patience - time.time()
    if left > 0:
        raise TooEarly(f"{delivery.item} may wait for another {left:.0f} s")
    name, message = f"{flag['since']:.6f}.{delivery.item}.pipeline", _message(delivery, flag)
    if place.smtp:
        _send(place, name, message)
    else:
        _file(place, name, message)
    return []


def _send(place: Place, name: str, message: EmailMessage) -> None:
    """Raises OSError, as are all errors of smtplib, so that the job tries again."""
    if (place.sent / name).exists():
        return
    server = urlsplit(f"//{place.smtp}")
    place.check()
    with smtplib.SMTP(server.hostname or "", server.port or smtplib.SMTP_PORT, timeout=SILENCE) as session:
        session.send_message(message)
    place.put(place.sent / name, b"")


def _file(place: Place, name: str, message: EmailMessage) -> None:
    for folder in ("tmp", "new", "cur"):
        make_folder(place.mail / folder)
    # A mail program moves what it has shown from `new` to `cur`, and adds `:2,` and its marks.
    if not any((place.mail / "cur").glob(f"{name}*")):
        place.put(place.mail / "new" / name, message.as_bytes(policy=SMTP.clone(linesep="\n")))


def _suspicion(told: dict[str, Any]) -> str:
    counts, pixels = told["histogram"], told["size"][0] * told["size"][1]
    bands = [counts[begin : begin + 256] for begin in range(0, len(counts), 256)]
    if all(max(band) > BLANK * pixels for band in bands):
        return "nearly one colour"
    if all(sum(band[:DARK]) > BLANK * pixels for band in bands):
        return "nearly black"
    return ""


def _flag(delivery: Delivery, place: Place) -> dict[str, Any] | None:
    try:
        found: dict[str, Any] = json.loads((place.flagged / f"{delivery.item}.json").read_bytes())
    except FileNotFoundError:
        return None
    return found


def _message(delivery: Delivery, flag: dict[str, Any]) -> EmailMessage:
    since = datetime.fromtimestamp(flag["since"], UTC)
    message = EmailMessage()
    message["From"] = "pipeline@library.example"
    message["To"] = CURATOR
    message["Subject"] = f"{delivery.item} waits for you"
    message["Date"] = format_datetime(since)
    message["Message-ID"] = f"<{flag['since']:.6f}.{delivery.item}@library.example>"
    pages = "".join(f"  {one['page']}: {one['why']}\n" for one in flag["pages"])
    message.set_content(f"Please look at {delivery.item}, which waits since {since:%Y-%m-%d %H:%M} UTC:\n\n{pages}")
    return message
