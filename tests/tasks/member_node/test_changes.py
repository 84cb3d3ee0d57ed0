"""What a member says of itself is compared field by field, and each field is put on the list's member alone."""

from typing import get_args

import pytest

from tasks.member_node.changes import FIELDS, changes, put, value
from tasks.member_node.member import Member, Ping, Property, ReplicationPolicy, Restriction, Service
from tasks.settings import Say, Settings
from tests.tasks.conftest import RIVER, day, river_with

ADDED = Service(name="MNStorage", version="v2", restrictions=(Restriction(method="create", subjects=("CN=x",)),))
OFF = tuple(one.model_copy(update={"available": not one.available}) for one in RIVER.services)
OTHERS: dict[str, Member] = {
    "name": river_with(name="Another"),
    "description": river_with(description="Of another."),
    "base_url": river_with(base_url="https://elsewhere.example.org/mn"),
    "type": river_with(type="Monitor"),
    "state": river_with(state="unknown"),
    "replicate": river_with(replicate=not RIVER.replicate),
    "synchronize": river_with(synchronize=not RIVER.synchronize),
    "services": river_with(services=(*RIVER.services, ADDED)),
    "available": river_with(services=OFF),
    "schedule": river_with(schedule=None),
    "replication_policy": river_with(replication_policy=ReplicationPolicy(max_object_size=7)),
    "subjects": river_with(subjects=("CN=x",)),
    "contact_subjects": river_with(contact_subjects=("CN=x",)),
    "properties": river_with(properties=(Property(key="a", value="b"),)),
}


def test_each_field_has_a_row_here() -> None:
    assert OTHERS.keys() == {*FIELDS}


@pytest.mark.parametrize("field", FIELDS)
def test_a_field_that_differs_is_named_and_put_on_the_member_alone(field: str) -> None:
    differing = changes(RIVER, OTHERS[field])
    assert {*differing} == {field}
    assert changes(put(RIVER, field, differing[field]), OTHERS[field]) == {}
    others = {*FIELDS} - {field, *(["available"] if field == "services" else [])}
    assert all(value(put(RIVER, field, differing[field]), name) == value(RIVER, name) for name in others)


def test_order_does_not_count_and_what_coordinating_nodes_noted_is_none_of_a_members_business() -> None:
    own = Property(key="own", value="1")
    noted = river_with(properties=(own, *RIVER.properties))
    described = noted.model_copy(
        update={
            "services": RIVER.services[::-1],
            "subjects": RIVER.subjects[::-1],
            "properties": (Property(key="CN_logo", value="mine"), own),
            "last_harvested": day(9),
            "ping": Ping(success=False),
        }
    )
    assert changes(noted, described) == {}
    (to,) = changes(noted, river_with(properties=())).values()
    assert put(noted, "properties", to).properties == RIVER.properties


def test_a_v1_description_which_has_no_place_for_properties_leaves_them() -> None:
    v1 = tuple(one.model_copy(update={"version": "v1"}) for one in RIVER.services)
    ours = river_with(properties=(Property(key="own", value="1"),))
    assert "properties" in changes(ours, RIVER)
    assert "properties" not in changes(ours, river_with(services=v1))


def test_a_service_keeps_its_switch_while_others_come_and_go() -> None:
    described = river_with(services=(*OFF, ADDED))
    differing = changes(RIVER, described)
    assert {*differing} == {"services", "available"}
    both = put(put(RIVER, "services", differing["services"]), "available", differing["available"])
    assert changes(both, described) == {}
    only = put(RIVER, "services", differing["services"])
    assert {*changes(only, described)} == {"available"}


def test_what_is_no_member_cannot_be_put() -> None:
    with pytest.raises(ValueError, match="base_url"):
        put(RIVER, "base_url", "ftp://nowhere")


def test_an_operator_names_the_fields_that_a_member_may_change() -> None:
    may = Settings.from_environment({"TASKS_MEMBER_MAY": "state, base_url"}).member_may
    assert may == ("state", "base_url")
    assert {*Settings().member_may} < {*FIELDS} == {*get_args(Say)}
    for name in ("identifier", "last_harvested"):
        with pytest.raises(ValueError, match="MEMBER_MAY"):
            Settings.from_environment({"TASKS_MEMBER_MAY": name})
