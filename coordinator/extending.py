"""For those who extend the coordinator: what an app's own commands, answers, pages, metrics and stores are made of.

    from coordinator.extending import Codes, Page, Pages, act_options, cause, print_list

What a user of the library needs stands in `coordinator`. docs/api.md tells how the parts go into an `Extension`.

Commands
    Later, ShowByName   groups of commands that are imported at their first use; of which a name alone shows one
    act_options         adds --why, --by and --ticket to the command of an act; refuses_viewers
    json_option, paged  add --json, and --most and --after; page_of cuts a list for them
    print_list, columns_of, as_json, as_pairs, as_table, as_text   write what a command answers
    listen              opens the socket of a server that a command runs

Acts, and the trail of them
    Acting, act_of, author_of, note_act

Answers of why and doctor
    Codes, cause        the codes of causes with their sentences; makes a Cause of one
    server_findings     the findings about a Redis

Pages of the dashboard
    Pages, Page, View, Tab, Field, Act, Asked, Reading, job_link

Jobs and lanes
    Spec, delay_of, lanes_at, why_closed, MAX_LANE_LIMIT
    validation                           checks of options; near(…) hints at a name that is like a wrong one
    next_tick, next_ticks, schedule_of   instants of an entry; a schedule of its text
    DirectoryWatch, File                 files that have arrived

The coordinator's Redis, and the broker
    Store, Json, Arg, instant, time_left      steps and commands; values; its instants; the time for a call
    Library, assemble, text_of, RULES         a library of steps of one's own, with the coordinator's rules
    split_url, sentinels_of, as_broker        addresses; REFUSED_CHARACTERS: what no name has
    is_amqp, confirmed, TWICE, request_queue  publishes that the broker confirms; a queue that others may declare

Processes
    StoppableThread, Prompt, Supervisor, ChildSpec, EmbeddedRedis, EmbeddedUnavailable
"""

from importlib import import_module
from pkgutil import get_data

# The stub lists the names for type checkers, one a line.
_LINES = (get_data("coordinator", "extending.pyi") or b"").decode().splitlines()
_HOME_OF = {line.split()[-1]: line.split()[1] for line in _LINES}


def __getattr__(name: str) -> object:
    """Each name is loaded at its first use: a node needs no click, a command no page."""
    if name not in _HOME_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    home = import_module(_HOME_OF[name])
    return getattr(home, name) if hasattr(home, name) else import_module(f"{home.__name__}.{name}")  # a module


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOME_OF})
