"""What the OpenAPI document of `/api` says besides the routes: how one logs in, and each answer that is no success.

The routes answer errors as JSON. What the Guard refuses (access.py) never reaches them, and is a line of text.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TypeAlias, cast

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from fastapi.openapi.utils import get_openapi
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from coordinator.core.verbs import Option, Reading

Part: TypeAlias = dict[str, object]
"""A part of an OpenAPI document."""
_JSON, _TEXT = "application/json", "text/plain"
_REFUSED: dict[int, tuple[str, tuple[str, ...]]] = {
    400: ("A value is wrong, or the thing is not in a state for this; `detail` says which and the way out.", (_JSON,)),
    401: ("Not logged in.", (_TEXT,)),
    404: ("There is no such thing.", (_JSON,)),
    421: ("The Host header is no name of this dashboard.", (_TEXT,)),
    500: ("A fault of the dashboard; its log says which.", (_JSON,)),
    503: ("Redis, or another server, does not answer or refuses; or the answer took too long.", (_JSON,)),
}
_REFUSED_ACT: dict[int, tuple[str, tuple[str, ...]]] = _REFUSED | {
    403: ("A viewer may not act (JSON); or the request comes from another site, or lacks the form's token.",
          (_JSON, _TEXT)),
    413: ("The body is too long.", (_TEXT,)),
    429: ("As many acts run as may run at once: try again once one has ended.", (_JSON,)),
}  # fmt: skip
_ERROR: Part = {
    "title": "Error",
    "type": "object",
    "required": ["error", "detail"],
    "properties": {"error": {"type": "string"}, "detail": {"type": "string"}},
}
_FORM = "X-Coordinator-Token"
_TYPES: Mapping[type, str] = {int: "integer", float: "number", bool: "boolean"}


def parameters_of(reading: Reading, more: Iterable[str] = ()) -> list[Part]:
    """Describe the parameters of a reading as they stand in an address. `more`: names that extensions add."""
    # A reading of one thing needs its name.
    things = [
        {"name": name, "in": "query", "required": True, "schema": {"type": "string"}} for name in reading.thing.names
    ]
    named = [
        {"name": option.name, "in": "query", "required": False, "schema": _schema(option), "description": option.help}
        for option in reading.options
    ]
    added = [
        {"name": name, "in": "query", "required": False, "schema": {"type": "string"}, "description": f"A {name}."}
        for name in more
    ]
    return [*things, *named, *added]


def _schema(option: Option) -> Part:
    schema: Part = {"type": _TYPES.get(option.kind, "string")}
    bounds = {"minimum": option.least, "maximum": option.most, "default": option.default}
    schema |= {name: value for name, value in bounds.items() if value not in (None, "")}
    return schema | ({"enum": [*option.choices]} if option.choices else {})


def document(api: FastAPI, cookie: str) -> Callable[[], Part]:
    """Return the function that makes the document of `api` once. `cookie`: the name of the cookie of a login with the
    token; "": the app around the dashboard has a login of its own.
    """

    def made() -> Part:
        if not api.openapi_schema:
            api.openapi_schema = _whole(get_openapi(title=api.title, version=api.version, routes=api.routes), cookie)
        return api.openapi_schema

    return made


def _whole(found: Part, cookie: str) -> Part:
    schemes = _schemes(cookie)
    logins: list[Part] = [{"token": []}, {"session": []}] if cookie else []
    acts: list[Part] = [{"token": []}, {"session": [], "form": []}] if cookie else [{"form": []}]
    for path in cast(dict[str, dict[str, Part]], found["paths"]).values():
        for method, operation in path.items():
            refused = _REFUSED_ACT if method == "post" else _REFUSED
            known = cast(Part, operation["responses"])
            known.pop("422", None)  # what is wrong with a body is answered as any wrong value is
            known |= {str(status): _response(*said) for status, said in refused.items()}
            operation["security"] = acts if method == "post" else logins
    parts = cast(dict[str, Part], found.get("components", {}))
    schemas = {name: one for name, one in parts.get("schemas", {}).items() if "ValidationError" not in name}
    return found | {"components": parts | {"schemas": schemas | {"Error": _ERROR}, "securitySchemes": schemes}}


def _response(description: str, kinds: Iterable[str]) -> Part:
    shapes: Mapping[str, Part] = {_JSON: {"$ref": "#/components/schemas/Error"}, _TEXT: {"type": "string"}}
    return {"description": description, "content": {kind: {"schema": shapes[kind]} for kind in kinds}}


def _schemes(cookie: str) -> Part:
    said = "The field `_token` of a form of the pages, which belongs to the cookie `coordinator_form`."
    form: Part = {"form": {"type": "apiKey", "in": "header", "name": _FORM, "description": said}}
    if not cookie:
        return form
    token = {"type": "http", "scheme": "bearer", "description": "The dashboard's token, for programs."}
    session = {"type": "apiKey", "in": "cookie", "name": cookie, "description": "The session of a login in a browser."}
    return {"token": token, "session": session, **form}


def answers_as_errors(api: FastAPI) -> None:
    """Have what the framework itself refuses answered in the shape of all errors: a wrong body, an unknown route."""

    async def invalid(_: object, error: Exception) -> JSONResponse:
        wrong = error.errors() if isinstance(error, RequestValidationError) else []
        said = "; ".join(f"{'.'.join(map(str, one['loc'][1:])) or 'the body'}: {one['msg']}" for one in wrong)
        return JSONResponse({"error": "That does not work", "detail": said}, 400)

    async def missing(_: object, error: Exception) -> JSONResponse:
        status = error.status_code if isinstance(error, HTTPException) else 500
        detail = "There is no such route: /api/openapi.json lists all" if status == 404 else str(error)
        return JSONResponse({"error": "Not there" if status == 404 else "That does not work", "detail": detail}, status)

    api.add_exception_handler(RequestValidationError, invalid)
    api.add_exception_handler(HTTPException, missing)
