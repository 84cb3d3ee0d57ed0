"""What the machine submits: the step's arguments by way of a real request, and the same job as the model knows it."""

from datetime import UTC, datetime
from typing import Any

from coordinator.core.jobs import uses as quotas
from coordinator.core.jobs.options import JobDefaults, SubmitOptions, TaskDefault, Use
from coordinator.core.jobs.request import JobRequest, RequestMaker
from coordinator.core.settings import Settings
from proof.model import record

KINDS = ("shop\ncelery", "shop\nother")
LIFETIME, KEEP_SUCCESS, KEEP_FAILURE = 600_000, 1_200_000, 3_600_000
STEPS = ("celery", "other", "celery")
_SETTINGS = Settings(url="redis://-", keep_success=KEEP_SUCCESS / 1000, keep_failure=KEEP_FAILURE / 1000)  # type: ignore[call-arg]

AS_ASKED = ("max_attempts", "max_losses", "hold", "tell", "conflicts", "span")  # the model has them by these names

# What a submit may ask for beside its keys; those of two are put together.
FLAVOURS: dict[str, dict[str, Any]] = {
    "bare": {},
    "fragile": {"max_losses": 0},
    "undo": {"undo": "shop.other"},
    "elsewhere": {"undo": "shop.other", "back": ("other",)},
    "undo in steps": {"undo": "shop.other", "back": STEPS},
    "undo in steps and hold": {"undo": "shop.work", "back": STEPS, "hold": True, "limit": 20_000},
    "hold": {"hold": True},
    "undo and hold": {"hold": True, "undo": "shop.other"},
    "order": {"steps": STEPS},
    "limited": {"limit": 20_000},
    "later": {"later": 30_000},
    "in a while": {"later": 30_000, "span": True},
    "hurried": {"within": 30_000},
    "more hurried": {"within": 5_000},
    "hurried from now": {"within": 30_000, "span": True},
    "skip": {"when_busy": "skip"},
    "defer": {"when_busy": "defer"},
    "united": {"collect": {"how": "merge"}, "kwargs": {"what": ["x"]}},
    "united too": {"collect": {"how": "merge"}, "kwargs": {"what": ["y"]}},
    "all": {"collect": {"how": "merge"}, "kwargs": {"what": None}},
    "tell": {"tell": True},
    "child": {"child": True},
    "child that tells": {"child": True, "tell": True},
    "conflicts": {"conflicts": 20},
    "fewer conflicts": {"conflicts": 19},
    "strange": {"task": "shop.other"},
    "moved": {"queue": "other"},
    "room": {"room": 1},
    "replace": {"when_busy": "replace"},
    "flow": {"uses": {"t/a": 1}},
    "flow of another": {"uses": {"t/b": 1}},
    "flow of both": {"uses": {"t/a": 1, "u": 1}},
    "much flow": {"uses": {"u": 2, "t/b": 1}},
    "all flow": {"uses": {"t/b": "all"}},
    "flow to the end": {"uses": {"t/a": Use(1, "end"), "t/b": 1}},
    "alone": {"uses": {"t/a": 1, "u": 2}, "exclusive": True},
}


class Ask:
    """One submit: `args` of the step job_submit, `job` for the model."""

    def __init__(self, name: str, keys: tuple[str, ...], priority: int, now: int, parent: str, **asked: Any) -> None:
        self.busy, self.room = asked.get("when_busy", "queue"), asked.get("room")
        if "after" in asked:
            self.busy, self.room = "queue", None
            for name in ("when_busy", "room", "collect"):
                asked.pop(name, None)
        if self.busy != "queue":
            asked.pop("later", None)
        self.queues = asked.get("steps") or (asked.get("queue", "celery"),)
        self.back = asked.get("back", ("celery",))
        if self.busy != "queue" or self.queues[1:] or not keys:
            asked.pop("collect", None)
        if self.busy != "queue" or "collect" in asked:
            asked.pop("later", None)
        self.asked, self.name, self.keys, self.priority, self.now = asked, name, keys, priority, now
        made = self._request()
        extra: list[Any] = ["parent", parent] if asked.get("child") and parent else []
        if "conflicts" in asked:
            extra += ["conflicts", asked["conflicts"]]
        if extra:
            extra += ["seldom", 1]
        self.args = (*made.step_args(), *extra)
        fields = dict(zip(made.fields[::2], made.fields[1::2], strict=True))
        self.job = self._job(str(fields.get("equal", "")), parent if extra[:1] == ["parent"] else "")
        self.job.terms, self.job.calls = record.collected(made.when_busy, str(fields.get("calls", "")))

    def held(self, sorter: str, sort_key: str, asked: str, idle: int, longest: int, *file: str) -> tuple[Any, ...]:
        """The same as a sorter's order: `args` of the step sorter_add."""
        times = (idle, longest, asked, self.args[3], self.args[4])
        return (*self.args[:2], sorter, sort_key, *times, *file, "", *self.args[6:])

    def _request(self) -> JobRequest:
        asked = self.asked
        signature = _signature(asked.get("task", "shop.work"), self.queues)
        if "collect" in asked:
            signature |= {"args": asked.get("args", ()), "kwargs": asked.get("kwargs", {})}
        if "within" in asked:
            signature["options"]["expires"] = self._asked_time("within")
        span = asked.get("span", False)
        if span and "later" in asked:
            signature["options"]["countdown"] = self._asked_time("later")
        wanted = SubmitOptions(
            when_busy=self._when_busy(),
            job_id=self.name,
            priority=self.priority,
            max_attempts=asked.get("max_attempts", 1),
            max_losses=asked.get("max_losses"),
            max_lifetime=LIFETIME / 1000,
            time_limit=asked.get("limit", 0) / 1000 or None,
            rollback=_signature(asked["undo"], self.back) if "undo" in asked else None,
            on_failure="hold" if asked.get("hold") else "release",
            not_before=None if span else self._asked_time("later") if "later" in asked else None,
            max_waiting=asked.get("room"),
            exclusive=asked.get("exclusive", False),
            collect=asked.get("collect"),
        )
        wanted |= asked.get("grab", {})
        wanted |= {name: asked[name] for name in ("needs", "uses", "after", "on_failure_of") if name in asked}  # type: ignore[typeddict-item]
        target = JobDefaults(
            asked.get("app", "shop"), lambda step: TaskDefault("celery", result=bool(asked.get("tell")))
        )
        return RequestMaker(_SETTINGS, target).make(asked.get("key") or list(self.keys), signature, wanted)

    def _when_busy(self) -> Any:
        """`skip 3`: the job looks at its third key only, which is its last one."""
        if not self.busy.startswith("skip "):
            return self.busy
        return {key: "skip" if key == self.keys[-1] else "queue" for key in self.keys}

    def _ms(self, what: str) -> int:
        """As the model is told: a span, or an instant by the wall clock."""
        return int(self.asked[what] + (0 if self.asked.get("span") else self.now))

    def _asked_time(self, what: str) -> Any:
        ms = self._ms(what)
        return ms / 1000 if self.asked.get("span") else datetime.fromtimestamp(ms / 1000, UTC)

    def _job(self, coalesce: str, parent: str) -> record.Job:
        asked = self.asked
        task, limit = asked.get("task", "shop.work"), asked.get("limit", 0)
        app, needs = asked.get("app", "shop"), asked.get("needs", ())
        places = tuple(record.Place("\n".join((app, queue, *needs)), task, limit) for queue in self.queues)
        back = self.back if "undo" in asked else ()
        return record.Job(
            id=self.name,
            keys=self.keys,
            uses=uses_of(asked.get("uses", {}), asked.get("exclusive", False)),
            priority=self.priority,
            place=places[0],
            steps=places if self.queues[1:] else (),
            undo=tuple(record.Place(f"shop\n{queue}", asked["undo"], limit) for queue in back),
            lifetime=LIFETIME,
            keep_success=KEEP_SUCCESS,
            keep_failure=KEEP_FAILURE,
            parent=parent,
            expires=self._ms("within") if "within" in asked else None,
            not_before=self._ms("later") if "later" in asked else 0,
            coalesce=coalesce,
            after=_after(asked.get("after", ())),
            policy=asked.get("on_failure_of", "fail"),
            **{name: asked[name] for name in AS_ASKED if name in asked},
        )


def _after(after: Any) -> tuple[tuple[str, str], ...]:
    """Arguments and causes; each line once."""
    named = after.items() if isinstance(after, dict) else [("", cause) for cause in after]
    return tuple(dict.fromkeys((argument, str(getattr(cause, "cause", cause))) for argument, cause in named))


def _signature(task: str, queues: tuple[str, ...]) -> dict[str, Any]:
    """Of several queues a chain of as many steps."""
    if not queues[1:]:
        return {"task": task, "args": (), "kwargs": {}, "options": {"queue": queues[0]}}
    tasks = [_signature(task, (queue,)) for queue in queues]
    return {"task": "celery.chain", "subtask_type": "chain", "args": (), "kwargs": {"tasks": tasks}, "options": {}}


def uses_of(uses: Any, exclusive: bool = False) -> tuple[record.Use, ...]:
    """As the model knows them."""
    found = quotas.read_uses(uses) if uses else {}
    units = {name: 0 if exclusive or use.units == "all" else use.units for name, use in found.items()}
    return tuple(record.Use(name, units[name], use.until == "end") for name, use in found.items())


def lock(name: str, key: str, ttl: int, uses: Any = "") -> tuple[tuple[Any, ...], record.Job]:
    """A lock in plain code: arguments of lock_take after `when_busy`, and the model's job."""
    token, text = f"of {name}", quotas.text_of_uses(quotas.read_uses(uses)) if uses else ""
    job = record.Job(id=name, keys=(key,) if key else (), place=None, token=token, ttl=ttl, lifetime=LIFETIME)
    job.uses = uses_of(uses)
    return (token, ttl, LIFETIME, text), job
