"""The reminder by a mail server."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from email import message_from_bytes
from email.message import Message

import pytest
from aiosmtpd.controller import Controller
from aiosmtpd.smtp import SMTP, Envelope, Session

from coordinator.local.redis import free_port
from examples.batches.delivery import Delivery
from examples.batches.people import CURATOR, warning_email_sent
from examples.batches.place import Place
from tests.examples.conftest import ITEM, WORK


class Box:
    """What a mail server took."""

    def __init__(self) -> None:
        self.mails: list[Message] = []
        self.to: list[str] = []

    async def handle_DATA(self, server: SMTP, session: Session, envelope: Envelope) -> str:
        self.to += envelope.rcpt_tos
        self.mails.append(message_from_bytes(envelope.original_content or b""))
        return "250 OK"


@pytest.fixture
def box() -> Box:
    return Box()


@pytest.fixture
def controller(box: Box) -> Iterator[Controller]:
    controller = Controller(box, hostname="127.0.0.1", port=free_port())
    controller.start()
    yield controller
    if controller.loop.is_running():
        controller.stop()


@pytest.fixture
def mailing(place: Place, delivery: Delivery, controller: Controller) -> Place:
    """A batch waits for its curator."""
    for event in ("Histogrammed", "Manual_QA_Flagged"):
        WORK[event](delivery, place)
    return replace(place, smtp=f"127.0.0.1:{controller.port}")


def test_a_mail_server_is_given_one_reminder(mailing: Place, delivery: Delivery, box: Box) -> None:
    for _ in range(2):
        assert not warning_email_sent(delivery, mailing)
    (mail,) = box.mails
    assert (mail["Subject"], box.to) == (f"{ITEM} waits for you", [CURATOR])
    assert "a sample" in str(mail.get_payload())
    assert not mailing.mail.exists()


def test_a_mail_server_that_is_away_is_asked_again_later(
    mailing: Place, delivery: Delivery, controller: Controller
) -> None:
    controller.stop()
    with pytest.raises(OSError, match="refused"):
        warning_email_sent(delivery, mailing)
    assert not mailing.sent.exists()


def nth_fails(number: int) -> Callable[[], None]:
    calls = iter(range(1, 9))

    def check() -> None:
        if next(calls) == number:
            raise KeyboardInterrupt

    return check


@pytest.mark.parametrize(("number", "mails"), [(1, 1), (2, 2)])
def test_a_run_killed_before_its_note_sends_again_under_the_same_id(
    mailing: Place, delivery: Delivery, box: Box, number: int, mails: int
) -> None:
    with pytest.raises(KeyboardInterrupt):
        warning_email_sent(delivery, replace(mailing, check=nth_fails(number)))
    assert not warning_email_sent(delivery, mailing)
    assert len(box.mails) == mails
    assert len({mail["Message-ID"] for mail in box.mails}) == 1
