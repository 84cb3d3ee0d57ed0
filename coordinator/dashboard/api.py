"""JSON: what the pages show, and the acts. FastAPI writes the OpenAPI document from models that are made here.

A model is made of each dataclass that the coordinator's functions give, so JSON and Python have one shape; only fences
are strings, as ids are.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias, cast, get_args, get_origin, get_type_hints, is_typeddict

from fastapi import Body, FastAPI, Request
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ConfigDict, create_model

from coordinator.dashboard import acts
from coordinator.dashboard.access import VISIT
from coordinator.dashboard.extend import Act, Asked
from coordinator.dashboard.hide import without_hidden
from coordinator.dashboard.trouble import trouble_of
from coordinator.diagnosis.cause import Why
from coordinator.diagnosis.finding import Finding
from coordinator.diagnosis.summary import Summary
from coordinator.fleet.nodes import Node
from coordinator.jobs.instances import GrabRecord
from coordinator.jobs.rates import Rates
from coordinator.jobs.record import Job
from coordinator.jobs.search import FILTERS, Found, JobFilter
from coordinator.jobs.states import LaneState
from coordinator.jobs.trail import Action
from coordinator.lanes.view import Lane
from coordinator.scheduler.history import EntryEvent
from coordinator.scheduler.timetable import EntryStatus
from coordinator.sorters.sorter import SorterStatus
from coordinator.version import VERSION
from coordinator.warden.inbox.refused import RefusedRequest

if TYPE_CHECKING:
    from coordinator.client.coordinator import Coordinator

Kind: TypeAlias = Any
"""A type of ours, or of pydantic."""
Read = Callable[[Callable[[], object]], Awaitable[object]]
MOST = 1000


def _job(asked: Asked) -> object:
    return without_hidden(asked.coordinator, asked.coordinator.job(asked.text("id")))


def _entries(asked: Asked) -> object:
    return asked.coordinator.entries.all(asked.text("prefix"), MOST)


def _why(asked: Asked) -> object:
    return asked.coordinator.why(**{name: asked.text(name) for name in asked.values})


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
    wanted = JobFilter(**{name: value for name in FILTERS if (value := asked.text(name))})  # type: ignore[typeddict-item]
    found = asked.coordinator.jobs(most=asked.number("most", 50, 1, MOST), after=asked.text("after"), **wanted)
    return dataclasses.replace(found, jobs=tuple(without_hidden(asked.coordinator, one) for one in found.jobs))


def _lanes(asked: Asked) -> object:
    state = cast("LaneState | None", asked.text("state") or None)
    most = asked.number("most", 100, 1, MOST)
    return asked.coordinator.lanes(asked.text("prefix"), state, most, asked.text("after"))


# Path: the type of the answer, the function that gives it, the values in the URL.
READINGS: Mapping[str, tuple[Kind, Callable[[Asked], object], Sequence[str]]] = {
    "counts": (dict[str, int], lambda asked: asked.coordinator.counts(), ()),
    "lanes": (list[Lane], _lanes, ("prefix", "state", "after", "most")),
    "lane": (Lane, lambda asked: asked.coordinator.lane(asked.text("key")), ("key",)),
    "rates": (Rates, lambda asked: asked.coordinator.rates(), ()),
    "chart": (Chart, _chart, ()),
    "why-summary": (Summary, lambda asked: asked.coordinator.why_summary(), ()),
    "contended": (list[Lane], lambda asked: asked.coordinator.contended(), ()),
    "jobs": (Found, _jobs, (*FILTERS, "after", "most")),
    "refused": (list[RefusedRequest], lambda asked: asked.coordinator.refused(MOST), ()),
    "job": (Job, _job, ("id",)),
    "why": (Why, _why, ("job", "key", "node", "entry")),
    "doctor": (list[Finding], lambda asked: asked.coordinator.doctor(), ()),
    "actions": (list[Action], _actions, ("by", "thing", "after", "most")),
    "nodes": (list[Node], lambda asked: asked.coordinator.nodes(), ()),
    "entries": (list[EntryStatus], _entries, ("prefix",)),
    "entry": (EntryStatus, lambda asked: asked.coordinator.entries.entry(asked.text("name")), ("name",)),
    "history": (list[EntryEvent], lambda asked: asked.coordinator.entries.history(asked.text("name")), ("name",)),
    "grabs": (list[GrabRecord], lambda asked: asked.coordinator.grabs(asked.text("key") or None), ("key",)),
    "sorters": (list[SorterStatus], lambda asked: asked.coordinator.sorters(), ()),
}


class Done(BaseModel):
    """What an act did, or the things that it would hit."""

    done: str = ""
    plan: list[str] = []


def api_of(coordinator: Coordinator, known: Mapping[str, Act], read: Read) -> FastAPI:
    """Make the JSON part. `read` calls a function in a thread, with a time limit."""
    api = FastAPI(title="celery-coordinator", version=VERSION, docs_url=None, redoc_url=None)

    for path, (kind, function, names) in READINGS.items():
        parameters = [{"name": name, "in": "query", "schema": {"type": "string"}} for name in names]
        api.add_api_route(
            f"/{path}", _reader(coordinator, function, read), name=path, response_model=_shape(kind),
            openapi_extra={"parameters": parameters}, operation_id=path,
        )  # fmt: skip
    for name, act in known.items():
        api.add_api_route(
            f"/act/{name}", _doer(coordinator, name, act, read), methods=["POST"], name=act.title, response_model=Done,
            operation_id=name,
        )  # fmt: skip
    return api


def _reader(coordinator: Coordinator, function: Callable[[Asked], object], read: Read) -> Callable[..., object]:
    async def answer(request: Request) -> object:
        asked = Asked(coordinator, dict(request.query_params), request.scope[VISIT].author)
        try:
            return await read(partial(function, asked))
        except Exception as error:
            return _failed(error)

    return answer


def _doer(coordinator: Coordinator, name: str, act: Act, read: Read) -> Callable[..., object]:
    needed: dict[str, Kind] = dict.fromkeys((*act.thing, "why"), (str, ...))
    more: dict[str, Kind] = {"ticket": (str, ""), **{one.name: (str, one.default) for one in act.fields}}
    model = create_model(f"act-{name}", **needed, **more)

    async def answer(request: Request, values: BaseModel = Body(), dry_run: bool = False) -> object:  # noqa: B008
        asked = Asked(coordinator, values.model_dump(), request.scope[VISIT].author)

        def act_or_plan() -> Done:
            acts.check_reason(asked)
            if dry_run:
                return Done(plan=[*(act.plan(asked) if act.plan else [act.does(asked)])])
            return Done(done=act.do(asked))

        try:
            return await read(act_or_plan)
        except Exception as error:
            return _failed(error)

    answer.__annotations__ = {"request": Request, "values": model, "dry_run": bool}
    return answer


def _failed(error: Exception) -> JSONResponse:
    trouble = trouble_of(error)
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
        united: Kind = shaped[0]
        for one in shaped[1:]:
            united = united | one
        return united
    return cast(Kind, origin)[shaped]


def _model(kind: type, above: tuple[Kind, ...]) -> type[BaseModel]:
    hints = get_type_hints(kind, localns={"Json": Kind})
    fields: dict[str, Kind] = {name: (_shape(hint, above), ...) for name, hint in hints.items()}
    if "fence" in fields:
        fields["fence"] = (str | None, ...)
    config = ConfigDict(from_attributes=True, coerce_numbers_to_str=True)
    return create_model(kind.__name__, __config__=config, __doc__=kind.__doc__, **fields)
