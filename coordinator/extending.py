"""The names for authors of an `Extension`: the parts of an app's own commands, dashboard pages, metrics and stores.

    from coordinator.extending import Codes, Page, Pages, act_options, cause, print_list

The names for users of the library are in `coordinator`. docs/api.md shows how to put the parts into an `Extension`.

Commands
    Later, ShowByName   a command that is imported at its first use; a group where `NAME` means `show NAME`
    act_options         adds --why, --by and --ticket to the command of an act; refuses_viewers
    json_option, paged  add --json, and --most and --after; page_of cuts a list for them
    print_list, columns_of, as_json, as_pairs, as_table, as_text   print or format the output of a command
    listen              opens the socket of a server that a command runs

Verbs (what operators do), readings (what they read), and the audit trail of verbs
    verb, reading       decorators that declare a verb or reading; Thing, Option, Answer, Given, NOTHING, MOST, AFTER
    Verb, Reading, verbs_in, readings_in   the declarations; all declarations of a class or module
    command_of, commands_of, option_of     click commands and options, built from declarations
    Acting, act_of, author_of, note_act; acting: runs a block for an author

Answers of `why` and `doctor`
    Codes, cause        the codes of causes with their sentences; builds a Cause for a code
    server_findings     the findings about a Redis server

Pages of the dashboard
    dashboard, from_proxy   the ASGI app, for a server or an app of your own
    Pages, Page, View, Tab, Query, job_link; Hit: what a finder of the search returns

Jobs and lanes
    Spec, delay_of, lanes_at, why_closed
    QuotaClient                          reads quotas
    validation                           checks of options; near(…) hints at a name that is like a wrong one
    next_tick, next_ticks, schedule_of   the instants of an entry; parses the text of a schedule
    DirectoryWatch, File                 watches a directory for files that have arrived

The coordinator's Redis, and the broker
    Store, Json, Arg, instant, time_left      run steps and commands; their values; a time from ms; seconds left to call
    Library, assemble, text_of, RULES         build a Redis library of your own steps on the coordinator's Lua rules
    step, Reply, declared_in, fence_next      declare your own steps; the coordinator's step that creates a fence
    split_url, sentinels_of, as_broker        parse addresses; REFUSED_CHARACTERS: those that no name may have
    is_amqp, confirmed, TWICE, request_queue  publish with the broker's confirmation; a queue that others may declare

Processes
    StoppableThread, Prompt, Children, ChildSpec, EmbeddedRedis, EmbeddedUnavailable
"""

from importlib import import_module
from pkgutil import get_data

# `extending.pyi`, the stub for type checkers, imports each public name on a line of its own: the table is read from it.
_LINES = (get_data("coordinator", "extending.pyi") or b"").decode().splitlines()
_HOME_OF = {line.split()[-1]: line.split()[1] for line in _LINES}


def __getattr__(name: str) -> object:
    """Import `name` at its first use: a node then never imports click, nor a command the pages of the dashboard."""
    if name not in _HOME_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    home = import_module(_HOME_OF[name])
    # Else the name is a submodule of the package `home`.
    return getattr(home, name) if hasattr(home, name) else import_module(f"{home.__name__}.{name}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOME_OF})
