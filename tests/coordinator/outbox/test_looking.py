"""Who asks for a job that is still in an outbox is told so, and who waits for it waits."""

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest

from coordinator import InvalidJob, UnknownJob, aio
from tests.coordinator.outbox.conftest import Shop


@pytest.mark.parametrize("ask", ["job", "why"])
def test_a_job_in_an_outbox_is_said_to_be_there(either: Shop, ask: str) -> None:
    job_id, call = either.write(), getattr(either.coordinator, ask)
    with pytest.raises(UnknownJob, match=r"is in an outbox yet, as row \d+ of table .*: a node submits it within"):
        call(job_id)
    either.look()
    assert call(job_id)
    with pytest.raises(UnknownJob, match="it never existed"):
        call("nobody's")


def test_a_refused_row_says_why(shop: Shop) -> None:
    job_id = shop.write(uses="nobody's")
    shop.look()
    with pytest.raises(UnknownJob, match="nobody declared the quota"):
        shop.coordinator.job(job_id)


def test_who_waits_for_a_job_waits_while_it_is_in_an_outbox(shop: Shop) -> None:
    job_id = shop.write()
    ended: list[Any] = []
    waiting = threading.Thread(target=lambda: ended.append(shop.coordinator.wait(job_id, 60).state))
    waiting.start()
    shop.look()
    shop.node.order()
    waiting.join()
    assert ended == ["succeeded"]
    with pytest.raises(UnknownJob):
        shop.coordinator.wait(shop.write(), 0.1)
    with pytest.raises(UnknownJob):
        shop.coordinator.wait("nobody's")


def test_a_session_that_is_left_out_is_asked_for(shop: Shop, shop_in: Callable[..., Shop]) -> None:
    with pytest.raises(InvalidJob, match="the outbox is SQLAlchemy's: name the session"):
        shop.coordinator.submit_on_commit("order", {"task": "shop.work"}, outbox=True)


def test_who_awaits_a_job_waits_while_it_is_in_an_outbox(shop: Shop) -> None:
    async def body() -> str:
        async with aio.Coordinator(shop.coordinator) as coordinator:
            job_id = shop.write()
            with pytest.raises(UnknownJob, match="is in an outbox yet"):
                await coordinator.job(job_id)
            waiting = asyncio.create_task(coordinator.wait(job_id, 60))
            await asyncio.to_thread(shop.look)
            await asyncio.to_thread(shop.node.order)
            return (await waiting).state

    assert asyncio.run(body()) == "succeeded"
