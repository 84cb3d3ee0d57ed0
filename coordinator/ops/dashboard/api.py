"""The JSON routes of the dashboard, for what the pages show and for the acts. FastAPI writes an OpenAPI document.

A pydantic model is made of each dataclass that the coordinator's functions return, so JSON has the same fields as
Python; only fences are strings in JSON, as ids are.
"""

from __future__ import annotations

import dataclasses
import re
import sys
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial, reduce
from operator import or_
from typing import TYPE_CHECKING, Any, TypeAlias, cast, get_args, get_origin, get_type_hints, is_typeddict

from fastapi import Body, FastAPI, Request
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ConfigDict, create_model

from coordinator.core.client.client import Client
from coordinator.core.texts import near
from coordinator.core.verbs import Reading, readings_in
from coordinator.core.version import VERSION
from coordinator.errors import InvalidJob
from coordinator.ops.dashboard import hide
from coordinator.ops.dashboard.access import VISIT
from coordinator.ops.dashboard.acts import Act
from coordinator.ops.dashboard.document import Part, answers_as_errors, document, parameters_of
from coordinator.ops.dashboard.error_page import ErrorPage, error_page_of
from coordinator.ops.dashboard.extend import Query, values_of
from coordinator.ops.dashboard.running import RunningActs
from coordinator.ops.dashboard.show import plain
from coordinator.ops.readings import Readings
from coordinator.ops.verbs.requests import RequestVerbs
from coordinator.scheduler.steering import Entries

if TYPE_CHECKING:
    from coordinator.coordinator import Coordinator

Kind: TypeAlias = Any
"""A type annotation: a type of the coordinator, or the pydantic type that is made of it."""
Read = Callable[[Callable[[], object]], Awaitable[object]]
PATIENCE = 5.0  # seconds for which the response to an act waits for the act's end


@dataclasses.dataclass
class Chart:
    """The data of a chart. `labels`: (label, kind) of each series. `columns`: the instants in seconds since the epoch,
    then the values of each series.
    """

    labels: list[tuple[str, str]]
    columns: list[list[float]]


def _chart(coordinator: Coordinator) -> Chart:
    """Make the chart of the jobs that ended and that failed per minute, over the last day."""
    minutes = [one for one in coordinator.rates().minutes if one.seconds >= 1]
    ended = {"ended": [60 * one.per_second for one in minutes]}
    ended |= {"failed": [60 * one.failed / one.seconds for one in minutes]}
    instants = [one.since.timestamp() + one.seconds for one in minutes]
    return Chart([("ended a minute", "succeeded"), ("failed a minute", "failed")], [instants, *ended.values()])


READINGS = readings_in(Client, Readings, RequestVerbs, Entries)


class ActAnswer(BaseModel):
    """The answer to an act: `done` says what it did, or `plan` what it would change. `doing`: the id of an act that
    still runs, whose progress `/api/doing?id=…` gives; "" if the act has ended.
    """

    done: str = ""
    plan: list[str] = []
    doing: str = ""


@dataclasses.dataclass
class ActProgress:
    """The progress of an act: `done` of `total` things are changed. `over`: the act has ended; then `said` is what it
    did, or `wrong` why it failed.
    """

    done: int
    total: int
    over: bool
    said: str
    wrong: str


def api_of(
    coordinator: Coordinator, acts: Mapping[str, Act], more: Iterable[Reading], read: Read, running_acts: RunningActs,
    cookie: str = "",
) -> FastAPI:  # fmt: skip
    """Make the app for `/api`: a route for each reading, and a route for each act.

    `acts`: by name. `more`: readings that extensions add. `read`: calls a function in a thread, with a time limit.
    `running_acts`: the acts that this dashboard has begun. `cookie`: name of the cookie of a login with the token, "":
    there is another login.
    """
    api = FastAPI(title="celery-coordinator", version=VERSION, docs_url=None, redoc_url=None)
    api.openapi = document(api, cookie)  # type: ignore[method-assign]
    answers_as_errors(api)

    def how_far(query: Query) -> ActProgress:
        one = running_acts.of(query)
        return ActProgress(one.done, one.total, one.over, plain(one.message), one.error.text if one.error else "")

    def route(path: str, kind: Kind, function: Callable[[Query], object], parameters: list[Part]) -> None:
        api.add_api_route(
            f"/{path}", _reader(coordinator, function, read), name=path, response_model=_shape(kind),
            openapi_extra={"parameters": parameters}, operation_id=path,
        )  # fmt: skip

    act_id: Part = {"name": "id", "in": "query", "required": True, "schema": {"type": "string"}}
    route("chart", Chart, lambda query: _chart(query.coordinator), [])
    route("doing", ActProgress, how_far, [act_id | {"description": "Of the act."}])
    for reading in ({one.name: one for one in (*READINGS.values(), *more)}).values():
        added = [kind for one in coordinator.extensions for kind in one.why] if reading.name == "why" else []
        parameters = parameters_of(reading, added)
        names = [str(one["name"]) for one in parameters]
        route(reading.name, answer_of(reading), partial(_read, reading, names), parameters)
    for name, act in acts.items():
        api.add_api_route(
            f"/act/{name}", _doer(coordinator, name, act, read, running_acts), methods=["POST"], name=act.title,
            response_model=ActAnswer, operation_id=name,
        )  # fmt: skip
    return api


def _read(reading: Reading, names: Sequence[str], query: Query) -> object:
    for name in query.values:
        if name not in names:
            raise InvalidJob(f"{name:.40}: no parameter of {reading.name}{near(name, names)}")
    more = {name: query.text(name) for name in names if name not in reading.parameters.values() and query.text(name)}
    return reading.call(query.coordinator, reading.given(query.text) | more)


def answer_of(reading: Reading) -> Kind:
    """Return the type that a reading's function returns. If the annotation is a text, its names are looked up in the
    module of the function, then among the names that `coordinator` exports.
    """
    text, known = reading.function.__annotations__["return"], vars(sys.modules[reading.function.__module__])
    if not isinstance(text, str):
        return text
    front = sys.modules["coordinator"]
    names = re.findall(r"\w+", text)
    public = {name: getattr(front, name) for name in names if name not in known and name in dir(front)}
    return eval(text, {**known, **public})  # an annotation in code, never input


def _reader(coordinator: Coordinator, function: Callable[[Query], object], read: Read) -> Callable[..., object]:
    async def answer(request: Request) -> object:
        query = Query(coordinator, values_of(request.query_params.multi_items()), request.scope[VISIT].author)
        try:
            return await read(lambda: hide.shown(coordinator, function(query)))
        except Exception as error:
            return _failed(error_page_of(error, coordinator.extensions))

    return answer


def _doer(
    coordinator: Coordinator, name: str, act: Act, read: Read, running_acts: RunningActs
) -> Callable[..., object]:
    fields: dict[str, Kind] = dict.fromkeys((*act.values[: act.needs], "why"), (str, ...))
    fields |= dict.fromkeys((*act.values[act.needs :], "ticket"), (str, ""))
    fields |= {option.name: (str, option.text) for option in act.options}
    model = create_model(f"act-{name}", __config__=ConfigDict(extra="forbid"), **fields)

    async def answer(request: Request, values: BaseModel = Body(), dry_run: bool = False) -> object:  # noqa: B008
        query = Query(coordinator, values.model_dump(), request.scope[VISIT].author)
        try:
            if dry_run:
                return await read(lambda: ActAnswer(plan=[*map(plain, act.planned(query))]))
            running = await running_acts.begin(act, query, PATIENCE)
        except Exception as error:
            return _failed(error_page_of(error, coordinator.extensions))
        if running.error:
            return _failed(running.error)
        return ActAnswer(done=plain(running.message) or "The act goes on.", doing="" if running.over else running.id)

    answer.__annotations__ = {"request": Request, "values": model, "dry_run": bool}
    return answer


def _failed(error: ErrorPage) -> JSONResponse:
    return JSONResponse({"error": error.title, "detail": error.text}, error.status)


def _shape(kind: Kind, above: tuple[Kind, ...] = ()) -> Kind:
    """Return the pydantic type for a type of the coordinator: a model for a dataclass or named tuple, and Any for one
    that contains itself. `above`: the types whose fields led to this one.
    """
    if dataclasses.is_dataclass(kind) or (isinstance(kind, type) and hasattr(kind, "_fields")):
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
