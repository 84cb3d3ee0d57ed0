"""A nodelist of ten thousand members in LDAP."""

import logging
from pathlib import Path

import pytest

from tests.harness.slapd import SlapdServer
from tests.tasks.conftest import OverLdap, over_ldap, slapd
from tests.tasks.nodelist.test_ldap_deploy import are_read
from tests.tasks.nodelist.test_stores import are_taken_in

__all__ = ["over_ldap", "slapd"]
pytestmark = [pytest.mark.soak, pytest.mark.timeout(600)]


def test_ten_thousand_members_are_taken_in_and_looked_through_in_bounded_time(
    slapd: SlapdServer, over_ldap: OverLdap, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.ERROR)
    are_taken_in(slapd, over_ldap, 10_000, 90)


def test_ten_thousand_members_are_read_in_pages_in_bounded_time(tmp_path: Path) -> None:
    are_read(tmp_path, 10_000, 60)
