import shutil
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from examples.demo.member_server import MemberServer
from tasks.batches import Items
from tasks.catalog.catalog import Catalog
from tasks.harvest.harvest import harvest_member
from tasks.harvest.outcome import SyncResult
from tasks.harvest.sync_request import SyncRequest
from tasks.member_node.client import MemberNode
from tasks.member_node.member import Member
from tasks.nodelist.ldap.directory import Directory
from tasks.nodelist.protocol import WRITTEN, Dates
from tasks.nodelist.stores import State
from tasks.nodelist.xml_format import parse_nodelist, write_nodelist
from tasks.settings import Settings
from tests.harness.command import Run, called
from tests.harness.redis import RedisServer
from tests.harness.slapd import SlapdServer
from tests.tasks.nodelist.lists import Lists, over, over_xml

START = datetime(2024, 5, 14, 9, 0, tzinfo=UTC)
LATER = datetime(2025, 1, 1, tzinfo=UTC)
SAMPLES = Path(__file__).parent.parent / "samples"
SAMPLE = parse_nodelist((SAMPLES / "nodelist_v2_sample.xml").read_bytes()).members
RIVER = SAMPLE[1]
"""Has something of everything."""

IN_BOTH = pytest.mark.parametrize("settings", ["sqlite", "postgres"], indirect=True)
"""Each test once with its catalog in SQLite, and once in PostgreSQL."""


OverLdap = Callable[..., AbstractContextManager[Lists]]


def in_threads(act: Callable[[Any], object], args: Sequence[Any]) -> None:
    """Call `act` in a thread for each argument, and wait for all."""
    with ThreadPoolExecutor(len(args)) as pool:
        list(pool.map(act, args))


def river_with(**given: Any) -> Member:
    return RIVER.model_copy(update=given)


def document(folder: Path, *members: Member) -> str:
    """The path of a nodelist of these members, written there."""
    path = folder / "given.xml"
    path.write_bytes(write_nodelist(members))
    return str(path)


def day(number: int) -> datetime:
    return LATER + timedelta(days=number)


def at(seconds: float) -> datetime:
    """An instant long past."""
    return START + timedelta(seconds=seconds)


IMPATIENT = {"read_timeout": 1.5, "request_timeout": 6.0}


@dataclass
class OneMember:
    """A nodelist of one member, in memory."""

    listed: Member

    def member(self, member_id: str) -> Member | None:
        return self.listed if self.listed.identifier == member_id else None

    def harvested(
        self, member_id: str, dates: Dates, *, fence: int, started_from: datetime | None = None
    ) -> str | None:
        if started_from not in (None, self.listed.harvested_until):
            return None
        self.listed = Dates.of(self.listed).later(dates.floored()).put_on(self.listed)
        return WRITTEN

    def reset(self) -> None:
        self.listed = Dates.of(self.listed).begun_anew().put_on(self.listed)


@dataclass
class Federation:
    """One member, a nodelist that names it, and a catalog: all that a harvest needs."""

    settings: Settings
    server: MemberServer
    catalog: Catalog
    nodelist: OneMember
    fences: Iterator[int] = field(default_factory=lambda: count(1))

    @property
    def member_id(self) -> str:
        return self.server.member.identifier

    @property
    def member(self) -> Member:
        return self.nodelist.listed

    @property
    def harvested(self) -> set[str]:
        return {row["pid"] for row in self.catalog.objects(self.member_id, limit=10**6)}

    def with_settings(self, **changed: Any) -> "Federation":
        return replace(self, settings=self.settings.model_copy(update=changed))

    def impatient(self, **changed: Any) -> "Federation":
        """The same, where one who hangs is soon given up; a busy machine makes an answer late, too."""
        return self.with_settings(**IMPATIENT, **changed)

    def harvest(self, pids: Sequence[str] | None = None, complete: bool = False, **given: Any) -> SyncResult:
        """Of every change, unless `pids`, `complete` or `request` says otherwise."""
        settings = given.setdefault("settings", self.settings)
        given.setdefault("fence", next(self.fences))
        if pids is not None or complete:
            given["request"] = SyncRequest(None if not complete else "complete", tuple(pids or ()))
        with MemberNode(self.server.member, settings) as client:
            return harvest_member(
                self.server.member, client=client, catalog=self.catalog, nodelist=self.nodelist, **given
            )


@pytest.fixture
def settings(request: pytest.FixtureRequest, tmp_path: Path) -> Settings:
    """Patient with a busy machine. The catalog is in SQLite unless a parameter says `postgres`."""
    url = request.getfixturevalue("database") if getattr(request, "param", "sqlite") == "postgres" else ""
    return Settings(
        data_dir=tmp_path,
        database_url=url,
        connect_timeout=2,
        read_timeout=10,
        request_timeout=20,
        tries=2,
        try_pause=0.01,
        page_size=100,
        listing_limit=8 * 1024 * 1024,
    )


@pytest.fixture(scope="session")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A SQLite file with all tables and no rows: to make them costs more than most tests do with them."""
    settings = Settings(data_dir=tmp_path_factory.mktemp("tables"))
    for made in (Catalog(settings), Items(settings)):
        made.engine.dispose()
    return settings.data_dir / "catalog.sqlite"


@pytest.fixture
def with_tables(settings: Settings, tables: Path) -> None:
    """The database has its tables already, where it is in SQLite."""
    if not settings.database_url:
        shutil.copy(tables, settings.data_dir)


@pytest.fixture
def catalog(settings: Settings, with_tables: None) -> Iterator[Catalog]:
    catalog = Catalog(settings)
    yield catalog
    catalog.engine.dispose()


@pytest.fixture
def server() -> Iterator[MemberServer]:
    with MemberServer() as server:
        yield server


@pytest.fixture
def client(server: MemberServer, settings: Settings) -> Iterator[MemberNode]:
    with MemberNode(server.member, settings) as client:
        yield client


@pytest.fixture
def federation(settings: Settings, server: MemberServer, catalog: Catalog) -> Federation:
    return Federation(settings, server, catalog, OneMember(server.member))


@pytest.fixture
def own(redis_server: RedisServer, prefix: str, tmp_path: Path) -> dict[str, str]:
    """The environment of a service with a catalog of its own; no node lives."""
    return {
        "COORDINATOR_URL": redis_server.url(0),
        "COORDINATOR_PREFIX": prefix,
        "CELERY_BROKER_URL": redis_server.url(5),
        "TASKS_DATA_DIR": str(tmp_path / "data"),
        "TASKS_REPLICA_DIR": str(tmp_path / "replicas"),
    }


@pytest.fixture
def run(own: dict[str, str], tmp_path: Path) -> Run:
    """`coordinator -A tasks …` there."""
    return lambda *args, **env: called(tmp_path, own | env, *args)


@pytest.fixture
def slapd(tmp_path: Path) -> Iterator[SlapdServer]:
    """The base and its accounts, and no members."""
    with SlapdServer(tmp_path / "slapd") as started:
        yield started


@pytest.fixture
def directory(slapd: SlapdServer) -> Iterator[Directory]:
    with Directory(slapd.settings()) as client:
        yield client


@pytest.fixture
def river(directory: Directory) -> State:
    return directory.write(RIVER.identifier, None, RIVER, approved=True)


@pytest.fixture
def over_ldap(slapd: SlapdServer, redis_server: RedisServer, prefix: str, tmp_path: Path) -> OverLdap:
    """`with over_ldap() as lists`: a nodelist whose permanent store is `slapd`, with these settings of LDAP."""
    return partial(over, slapd, redis_server.url(0), prefix, tmp_path)


@pytest.fixture(params=["ldap", "xml"])
def lists(request: pytest.FixtureRequest, redis_server: RedisServer, prefix: str, tmp_path: Path) -> Iterator[Lists]:
    """RIVER and another are in the store, and were taken in."""
    members = [RIVER, river_with(identifier="urn:node:other")]
    if request.param == "ldap":
        made = request.getfixturevalue("over_ldap")()
    else:
        path = tmp_path / "nodelist.xml"
        path.write_bytes(write_nodelist([river_with(identifier="urn:node:first")]))
        made = over_xml(path, redis_server.url(0), prefix, tmp_path)
    with made as lists:
        for member in members:
            lists.outside_adds(member)
        lists.nodelist.refresh()
        yield lists
