"""`coordinator components …`: shows the declared components and the items they work on, and runs a component once."""

from copy import copy

import click

from coordinator.extending import ShowByName, as_json, as_pairs, as_table, columns_of, json_option, print_list
from tasks.components import by_hand, look
from tasks.components.registry import Registry

SHOWN = 5


@click.group(cls=ShowByName, invoke_without_command=True, subcommand_metavar="[NAME [--working] | run NAME]")
@json_option
@click.pass_context
def components(ctx: click.Context, as_json_: bool) -> None:
    """Show each component: what it waits for, its last run, what it works on, or why it works on nothing."""
    if ctx.invoked_subcommand:
        return
    registry: Registry = ctx.obj
    conditions = [look.condition(registry, component) for component in registry.all()]
    if as_json_:
        return print_list("components", conditions, {}, as_json_)
    heads = "component", "waits for", "limit", "works on", "waiting", "eligible", "last run", "next"
    click.echo(as_table(heads, [_row(condition) for condition in conditions]))
    for condition in conditions:
        for reason in condition["idle"]:
            click.echo(f"{condition['component']} is idle: {reason}")


def components_command(registry: Registry) -> click.Group:
    """Build the command group `components`, which shows and runs the components in `registry`."""
    command = copy(components)
    command.context_settings = {"obj": registry}
    return command


@components.command(hidden=True)
@click.argument("name")
@click.option("--working", is_flag=True, help="Only the items that it works on now.")
@json_option
@click.pass_obj
def show(registry: Registry, name: str, working: bool, as_json_: bool) -> None:
    """Show a component's declaration and state, or with --working the items that it works on."""
    component = registry[name]
    if working:
        return print_list(
            "working", look.working(registry, component), columns_of("item", "node", "job", "since"), as_json_
        )
    condition = look.condition(registry, component)
    lines = [(name, value) for name, value in condition.items() if name != "idle"]
    reasons = [("idle", reason) for reason in condition["idle"]]
    click.echo(as_json(condition) if as_json_ else as_pairs([*lines, *reasons]))


@components.command()
@click.argument("name")
@click.pass_context
def run(ctx: click.Context, name: str) -> None:
    """Run a component once: poll for items, and wait until the jobs of all of them have ended.

    Exit status: 0 done or nothing to do, 1 an item failed, 2 the run could not work, 3 another run is polling.
    """
    ctx.exit(_ran(ctx.obj, name))


def _ran(registry: Registry, name: str) -> int:
    """Run a component once, print the outcome of each item, and return the exit status."""
    try:
        ended = by_hand.run(registry, registry[name])
    except Exception as error:
        click.echo(f"{name} could not work: {error}", err=True)
        return by_hand.UNABLE
    for item, outcome in ended.items.items():
        if outcome == "succeeded":
            click.echo(f"Worked on {item} successfully")
        elif outcome == "failed":
            click.echo(f"Failed to process {item}")
        else:
            click.echo(f"{item}: {outcome}")
    if ended.why:
        click.echo(f"{name}: {ended.why}", err=True)
    elif not ended.items:
        click.echo(f"{name}: nothing to do")
    return ended.status


def _row(condition: look.ComponentCondition) -> list[object]:
    """Return the cells of a component's row in the table that `coordinator components` prints."""
    needs = [
        *condition["past"],
        *(f"{kind} failed" for kind in condition["past_failed"]),
        *(f"{kind} old" for kind in condition["old"]),
    ]
    working = ", ".join(condition["working"][:SHOWN]) + (" …" if len(condition["working"]) > SHOWN else "")
    numbers = condition["waiting"], condition["eligible"]
    times = condition["last_run"], condition["next_run"]
    return [condition["component"], needs, condition["limit"], working, *numbers, *times]
