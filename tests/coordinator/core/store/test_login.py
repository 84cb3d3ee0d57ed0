"""Logins that are not in the URL: a file that changes, and a CredentialProvider of redis-py."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

import pytest
import redis
from redis.credentials import CredentialProvider

from coordinator import Coordinator, SettingsError, StoreUnavailable, aio
from tests.coordinator.core.store.stores import put, store_of, submit
from tests.harness.redis import RedisServer
from tests.harness.waiting import wait_until

HERE = __name__


class Issued(CredentialProvider):
    """As that of a cloud: it makes a login when it is asked."""

    logins: ClassVar[list[tuple[str, str]]] = []

    def get_credentials(self) -> tuple[str, str]:
        return self.logins[-1]


class Nothing:
    pass


@pytest.fixture
def looks(own_redis: RedisServer) -> Iterator[redis.Redis]:
    with own_redis.client() as client:
        client.execute_command("ACL", "SETUSER", "node", "on", ">one", "~*", "&*", "+@all")
        yield client


def rotate(looks: redis.Redis) -> None:
    """Another password, and no connection that is open stays so."""
    looks.execute_command("ACL", "SETUSER", "node", "resetpass", ">two")
    looks.execute_command("CLIENT", "KILL", "USER", "node")


def test_a_password_file_is_read_again_when_it_changes(
    own_redis: RedisServer, looks: redis.Redis, tmp_path: Path
) -> None:
    file = tmp_path / "password"
    file.write_text("one\n")
    settings = {"url": f"redis://node@127.0.0.1:{own_redis.port}/0", "password_file": str(file)}
    store = store_of(**settings)
    with store.pop(store.key("bell")) as wait, store.listening(store.key("news")) as listen:
        assert (submit(store, "one"), wait(0.01), listen(0.01)) == (b"queued", None, None)
        rotate(looks)
        file.write_text("two")
        for call in (lambda: submit(store, "two"), lambda: wait(0.01), lambda: listen(0.01)):
            wait_until(lambda call=call: _goes(call))

    file.write_text("")
    with pytest.raises(
        StoreUnavailable, match=r"setting password_file \(constructor\), user 'node': ValueError: .*password is empty"
    ):
        submit(store_of(**settings), "one")
    file.unlink()
    with pytest.raises(StoreUnavailable, match="FileNotFoundError"):
        submit(store_of(**settings), "one")
    store.close()


def _goes(call: object) -> bool:
    try:
        call()  # type: ignore[operator]
    except StoreUnavailable:
        return False
    return True


def test_a_wait_outlives_the_moment_in_which_the_file_is_behind(
    own_redis: RedisServer, looks: redis.Redis, tmp_path: Path
) -> None:
    file = tmp_path / "password"
    file.write_text("one")
    store = store_of(f"redis://node@127.0.0.1:{own_redis.port}/0", password_file=str(file))
    rotate(looks)
    asked = []

    def ask() -> bytes:
        asked.append(1)
        if len(asked) == 2:
            file.write_text("two")
        return submit(store, "one")

    assert store.insist(ask, 1e12) == b"queued"
    store.close()


@pytest.mark.parametrize("path", [f"{HERE}.Issued", f"{HERE}:Issued"])
def test_a_credential_provider_is_asked_for_each_connection(
    own_redis: RedisServer, looks: redis.Redis, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Issued, "logins", [("node", "one")])
    url = f"redis://nobody:nothing@127.0.0.1:{own_redis.port}/0"
    store = store_of(url, credential_provider=path)
    assert submit(store, "one") == b"queued"
    rotate(looks)
    Issued.logins.append(("node", "two"))
    wait_until(lambda: put(store, "two"))
    Issued.logins.clear()
    looks.execute_command("CLIENT", "KILL", "USER", "node")
    with pytest.raises(StoreUnavailable, match=r"no login, by the setting credential_provider .*IndexError"):
        submit(store_of(url, credential_provider=path), "one")
    store.close()


def test_asyncio_logs_in_as_threads_do(own_redis: RedisServer, looks: redis.Redis, tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.write_text("one\n")

    async def body() -> None:
        url = f"redis://node@127.0.0.1:{own_redis.port}/0"
        async with aio.Coordinator(url=url, prefix="t", password_file=str(file)) as jobs:
            await jobs.counts()
            assert {client["name"] for client in looks.client_list() if client["user"] == "node"} == {
                Coordinator(url=url).store.connections.name
            }
            rotate(looks)
            file.write_text("two\n")
            for _ in range(100):
                try:
                    await jobs.counts()
                    break
                except StoreUnavailable:
                    await asyncio.sleep(0.01)
            assert await jobs.counts()

    asyncio.run(body())


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (
            {"credential_provider": "nowhere.Provider"},
            r"credential_provider \(constructor\): 'nowhere.Provider' cannot be imported: .* PYTHONPATH",
        ),
        ({"credential_provider": f"{HERE}.HERE"}, "cannot be called: TypeError"),
        ({"credential_provider": f"{HERE}.Nothing"}, "makes Nothing, and not a CredentialProvider of redis-py"),
        ({"credential_provider": f"{HERE}.Issued", "password_file": "/f"}, "take one of both out"),
        (
            {"url": "redis://:p@127.0.0.1:1/0", "password_file": "/f"},
            r"password_file \(constructor\): the URL has a pass",
        ),
        ({"url": "redis://127.0.0.1:1/0?credential_provider=a.B"}, "name it by the setting credential_provider"),
    ],
)
def test_a_wrong_login_is_told_by_the_name_of_its_setting(given: dict[str, str], said: str) -> None:
    with pytest.raises(SettingsError, match=said):
        store_of(**{"url": "redis://127.0.0.1:1/0", **given})


def test_a_name_that_redis_would_refuse_is_written_so_that_it_takes_it(
    own_redis: RedisServer, looks: redis.Redis
) -> None:
    store = store_of(own_redis.url(0))
    store.connections.call_it("worker", "größe 1@host")
    assert submit(store, "one") == b"queued"
    assert "coordinator:worker:gr%C3%B6%C3%9Fe%201@host" in {client["name"] for client in looks.client_list()}
    store.close()
