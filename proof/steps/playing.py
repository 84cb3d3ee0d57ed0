"""What players of recorded steps have in common: the clock, the server, and the comparison."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from proof.model.lanes import Lanes
from proof.model.ready import Server
from proof.steps.asked import Unknown
from proof.steps.recording import Look, Step


class Deviation(Exception):
    """A step did what the model does not."""


class Playing:
    """One installation, from an empty store on. A handler has the name of the step, gets its arguments, and returns the
    reply. `model` has the clocks and the fences; `told`: the recorded reply; `fences`: what each life of the library
    remembers, whatever becomes of the keys: its last fence, and as whose master it gave that; `servers`: the rest of
    that; `stored`: the last fence that the keys have.
    """

    def __init__(self, model: Lanes) -> None:
        self.model = model
        self.told: Any = None
        self.life = ""
        self.wall = 0
        self.fences: dict[str, tuple[int, str]] = {}
        self.servers: dict[str, Server] = {}
        self.stored = 0

    def play(self, step: Step) -> None:
        """Raises Deviation, or Unknown if the model has no such step."""
        handler: Callable[..., Any] | None = getattr(self, step.name, None)
        if handler is None:
            raise Unknown(step.name)
        if step.error:
            raise Deviation(f"{step.name} failed: {step.error}")
        self._go_to(step)
        last = self.model.fence
        expected = _text(self._reply_of(handler, step.args))
        if self.model.fence != last:
            self.fences[self.life] = self.model.fence, self.fences.get(self.life, (0, ""))[1]
            self.stored = self.model.fence
        if expected != self.told:
            raise Deviation(f"it should answer {expected}, and answers {self.told}")

    def _reply_of(self, handler: Callable[..., Any], args: list[str]) -> Any:
        return handler(*args)

    def _go_to(self, step: Step) -> None:
        """The time of a step, and the server that does it."""
        model = self.model
        self.told = step.reply
        fence, term = self.fences.get(step.life, (0, ""))
        model.ready.server = self.servers.setdefault(step.life, Server())
        if step.life != self.life:
            self.life, model.begins, model.fence = step.life, not fence, max(fence, model.fence)
        for told in step.outside:  # read where another server may have given fences
            if told.startswith("master_replid") and told != term:
                model.begins = True
                self.fences[step.life] = fence, told
                model.ready.server.noted = False
        since, model.wall = max(0, step.begun // 1000 - self.wall) if self.wall else 0, step.begun // 1000
        model.now += since  # a key is gone once its time is over, whether the step looks at a clock or not
        model.lapse()
        model.now -= since
        if step.time is None:
            return
        at, model.micros = divmod(step.time, 1000)
        if not self.wall:  # the clocks of an installation begin with its first step
            self.wall = model.now = model.uptime = model.last = model.noted = at
        model.pass_by(at - self.wall)
        model.wall = self.wall = at
        model.lapse()

    def differences(self, look: Look) -> list[str]:
        """Between what the model knows and what Redis keeps, at an instant at which nobody took a step."""
        raise NotImplementedError

    # Clocks

    def clock_read(self) -> Any:
        return [self.model.now, self.model.wall, self.model.uptime]

    def fence_next(self) -> Any:
        return self.model.next_fence()


def _text(value: Any) -> Any:
    """Numbers as the recording has them."""
    if isinstance(value, list | tuple):
        return [_text(one) for one in value]
    return str(int(value)) if isinstance(value, int) else value
