"""JSON: what the pages show, and the acts. FastAPI writes the OpenAPI document from models that are made here.

A model is made of each dataclass that the coordinator's functions give, so JSON and Python have one shape; only fences
are strings, as ids are.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Awaitable, Callable, Mapping
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING, Any, TypeAlias, cast, get_args, get_origin, get_type_hints, is_typeddict

from fastapi import Body, FastAPI, Request
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ConfigDict, create_model

from coordinator.dashboard import acts, hide
from coordinator.dashboard.access import VISIT
from coordinator.dashboard.doings import Doings
from coordinator.dashboard.error_page import ErrorPage, error_page_of
from coordinator.dashboard.extend import Act, Asked, Reading
from coordinator.dashboard.show import plain
from coordinator.diagnosis.cause import Why
from coordinator.diagnosis.finding import Finding
from coordinator.diagnosis.lost import LostNode
from coordinator.diagnosis.summary import Summary
from coordinator.fleet.nodes import Node
from coordinator.jobs.instances import GrabRecord
from coordinator.jobs.rates import Rates
from coordinator.jobs.record import Job
from coordinator.jobs.search import FILTERS, Found
from coordinator.jobs.states import LaneState
from coordinator.jobs.trail import Action
from coordinator.lanes.view import Holder, Lane, Lines
from coordinator.scheduler.history import EntryEvent
from coordinator.scheduler.steering import EntryStatus
from coordinator.sorters.sorter import SorterStatus
from coordinator.version import VERSION
from coordinator.warden.inbox.refused import RefusedRequest

if TYPE_CHECKING:
    from coordinator.client.coordinator import Coordinator

Kind: TypeAlias = Any
"""A type of ours, or of pydantic."""
Read = Callable[[Callable[[], object]], Awaitable[object]]
MOST = 1000
PATIENCE = 5.0  # seconds for which an answer waits for its act


@dataclasses.dataclass
class Lock:
    """A lane that plain code holds as a lock."""

    key: str
    holder: Holder


def _actions(asked: Asked) -> object:
    most, by, thing = asked.number("most", 100, 1, MOST), asked.text("by") or None, asked.text("thing") or None
    return asked.coordinator.actions(most, asked.text("after"), by=by, thing=thing)


@dataclasses.dataclass
class Chart:
    """Series for a chart: (label, kind) of each, and columns: instants in seconds, then a column for each series."""

    labels: list[tuple[str, str]]
    columns: list[list[float]]


def _chart(asked: Asked) -> Chart:
    """Jobs a minute over the last day."""
    minutes = [one for one in asked.coordinator.rates().minutes if one.seconds >= 1]
    ended = {"ended": [60 * one.per_second for one in minutes]}
    ended |= {"failed": [60 * one.failed / one.seconds for one in minutes]}
    instants = [one.since.timestamp() + one.seconds for one in minutes]
    return Chart([("ended a minute", "succeeded"), ("failed a minute", "failed")], [instants, *ended.values()])


def _jobs(asked: Asked) -> object:
    most = asked.number("most", 50, 1, MOST)
    return asked.coordinator.jobs(most=most, after=asked.text("after"), **acts.filter_of(asked))


def _lanes(asked: Asked) -> object:
    state = cast("LaneState | None", asked.text("state") or None)
    most = asked.number("most", 100, 1, MOST)
    return asked.coordinator.lanes(asked.text("prefix"), state, most, asked.text("after"))


READINGS: Mapping[str, Reading] = {
    "counts": Reading(dict[str, int], lambda asked: asked.coordinator.counts()),
    "lanes": Reading(list[Lane], _lanes, ("prefix", "state", "after", "most")),
    "lane": Reading(Lane, lambda asked: asked.coordinator.lane(asked.text("key")), ("key",)),
    "rates": Reading(Rates, lambda asked: asked.coordinator.rates()),
    "chart": Reading(Chart, _chart),
    "why-summary": Reading(Summary, lambda asked: asked.coordinator.why_summary()),
    "contended": Reading(Lines, lambda asked: asked.coordinator.contended()),
    "jobs": Reading(Found, _jobs, (*FILTERS, "after", "most")),
    "refused": Reading(list[RefusedRequest], lambda asked: asked.coordinator.refused(MOST)),
    "job": Reading(Job, lambda asked: asked.coordinator.job(asked.text("id")), ("id",)),
    "why": Reading(
        Why,
        lambda asked: asked.coordinator.why(**{name: asked.text(name) for name in asked.values}),
        ("job", "key", "node", "entry"),
    ),
    "doctor": Reading(list[Finding], lambda asked: asked.coordinator.doctor()),
    "actions": Reading(list[Action], _actions, ("by", "thing", "after", "most")),
    "nodes": Reading(list[Node], lambda asked: asked.coordinator.nodes()),
    "lost-nodes": Reading(list[LostNode], lambda asked: asked.coordinator.lost_nodes()),
    "entries": Reading(
        list[EntryStatus], lambda asked: asked.coordinator.entries.all(asked.text("prefix"), MOST), ("prefix",)
    ),
    "entry": Reading(EntryStatus, lambda asked: asked.coordinator.entries.entry(asked.text("name")), ("name",)),
    "history": Reading(
        list[EntryEvent], lambda asked: asked.coordinator.entries.history(asked.text("name")), ("name",)
    ),
    "locks": Reading(list[Lock], lambda asked: [Lock(*one) for one in asked.coordinator.locks(MOST)]),
    "grabs": Reading(
        list[GrabRecord],
        lambda asked: asked.coordinator.grabs(
            asked.text("key") or None, asked.number("most", 100, 1, MOST), asked.text("after")
        ),
        ("key", "after", "most"),
    ),
    "sorters": Reading(list[SorterStatus], lambda asked: asked.coordinator.sorters()),
}


class ActAnswer(BaseModel):
    """What an act did, or would hit. `doing`: it goes on, and `/api/doing?id=` says how far it is."""

    done: str = ""
    plan: list[str] = []
    doing: str = ""


@dataclasses.dataclass
class ActProgress:
    """An act that was begun."""

    done: int
    total: int
    over: bool
    said: str
    wrong: str


def api_of(
    coordinator: Coordinator, known: Mapping[str, Act], more: Mapping[str, Reading], read: Read, doings: Doings
) -> FastAPI:  # fmt: skip
    """Make the JSON part. `more`: what extensions add. `read` calls a function in a thread, with a time limit."""
    api = FastAPI(title="celery-coordinator", version=VERSION, docs_url=None, redoc_url=None)

    def how_far(asked: Asked) -> ActProgress:
        one = doings.of(asked)
        return ActProgress(one.done, one.total, one.over, plain(one.said), one.trouble.text if one.trouble else "")

    for path, reading in {**READINGS, "doing": Reading(ActProgress, how_far, ("id",)), **more}.items():
        parameters = [{"name": name, "in": "query", "schema": {"type": "string"}} for name in reading.names]
        api.add_api_route(
            f"/{path}", _reader(coordinator, reading.read, read), name=path, response_model=_shape(reading.kind),
            openapi_extra={"parameters": parameters}, operation_id=path,
        )  # fmt: skip
    for name, act in known.items():
        api.add_api_route(
            f"/act/{name}", _doer(coordinator, name, act, read, doings), methods=["POST"], name=act.title,
            response_model=ActAnswer, operation_id=name,
        )  # fmt: skip
    return api


def _reader(coordinator: Coordinator, function: Callable[[Asked], object], read: Read) -> Callable[..., object]:
    async def answer(request: Request) -> object:
        asked = Asked(coordinator, dict(request.query_params), request.scope[VISIT].author)
        try:
            return await read(lambda: hide.shown(coordinator, function(asked)))
        except Exception as error:
            return _failed(error_page_of(error, coordinator.extensions))

    return answer


def _doer(coordinator: Coordinator, name: str, act: Act, read: Read, doings: Doings) -> Callable[..., object]:
    fields: dict[str, Kind] = dict.fromkeys((*act.thing[: act.needs], "why"), (str, ...))
    fields |= dict.fromkeys((*act.thing[act.needs :], "ticket"), (str, ""))
    fields |= {one.name: (str, one.default) for one in act.fields}
    model = create_model(f"act-{name}", **fields)

    async def answer(request: Request, values: BaseModel = Body(), dry_run: bool = False) -> object:  # noqa: B008
        asked = Asked(coordinator, values.model_dump(), request.scope[VISIT].author)
        try:
            if dry_run:
                return await read(lambda: ActAnswer(plan=acts.plan_of(act, asked)))
            doing = await doings.begin(act, asked, PATIENCE)
        except Exception as error:
            return _failed(error_page_of(error, coordinator.extensions))
        if doing.trouble:
            return _failed(doing.trouble)
        return ActAnswer(done=plain(doing.said) or "It goes on.", doing="" if doing.over else doing.id)

    answer.__annotations__ = {"request": Request, "values": model, "dry_run": bool}
    return answer


def _failed(trouble: ErrorPage) -> JSONResponse:
    return JSONResponse({"error": trouble.title, "detail": trouble.text}, trouble.status)


def _shape(kind: Kind, above: tuple[Kind, ...] = ()) -> Kind:
    """The pydantic type of a type of ours: dataclasses become models, and what is recursive stays open."""
    if dataclasses.is_dataclass(kind):
        return Kind if kind in above else _model(cast(type, kind), (*above, kind))
    if is_typeddict(kind):
        return dict[str, Kind]
    origin, args = get_origin(kind), get_args(kind)
    if origin is None or not args or any(isinstance(arg, str) for arg in args):
        return kind
    shaped = tuple(arg if arg is ... else _shape(arg, above) for arg in args)
    if type(None) in args or origin.__module__ == "types":
        return reduce(or_, shaped)
    return cast(Kind, origin)[shaped]


def _model(kind: type, above: tuple[Kind, ...]) -> type[BaseModel]:
    hints = get_type_hints(kind, localns={"Json": Kind})
    fields: dict[str, Kind] = {name: (_shape(hint, above), ...) for name, hint in hints.items()}
    if "fence" in fields:
        fields["fence"] = (str | None, ...)
    config = ConfigDict(from_attributes=True, coerce_numbers_to_str=True)
    return create_model(kind.__name__, __config__=config, __doc__=kind.__doc__, **fields)
