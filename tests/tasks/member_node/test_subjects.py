"""Subjects of certificates are equal whatever wrote them, and only then."""

import pytest

from tasks.member_node.subjects import of_certificate, of_text

SCOUT = of_text("CN=urn:node:SCOUT,DC=dataone,DC=org")


@pytest.mark.parametrize(
    "text",
    [
        "cn=urn:node:SCOUT,dc=dataone,dc=org",
        " CN = urn:node:SCOUT , DC = dataone ,DC= org ",
        "commonName=urn:node:SCOUT,domainComponent=dataone,DC=org",
        r"CN=urn\3Anode:S\43\4FUT,DC=data\one,DC=org",
    ],
)
def test_case_of_names_blanks_and_escapes_do_not_count(text: str) -> None:
    assert of_text(text) == SCOUT


@pytest.mark.parametrize(
    "text",
    [
        "DC=org,DC=dataone,CN=urn:node:SCOUT",  # the order does count
        "CN=urn:node:scout,DC=dataone,DC=org",
        "CN=urn:node:SCOUT+DC=dataone,DC=org",
        "CN=urn:node:SCOUT,DC=dataone,DC=org,O=more",
        r"CN=urn:node:SCOUT\,DC=dataone,DC=org",
        r"CN=urn:node:SCOUT\ ,DC=dataone,DC=org",
        "CN=urn:node:SCOUT,DC=dataone,DC=org,",
        "/DC=org/DC=dataone/CN=urn:node:SCOUT",
        "public",
        "",
    ],
)
def test_another_subject_is_another(text: str) -> None:
    assert of_text(text) != SCOUT


@pytest.mark.parametrize("text", ["", "public", "CN=a,,DC=b", "CN=a,", "CN=a\\", "=a"])
def test_what_is_no_subject_reads_as_none(text: str) -> None:
    assert of_text(text) == ()


def test_a_comma_in_a_certificate_is_no_sign() -> None:
    told = of_certificate(((("domainComponent", "org"),), (("commonName", "a,O=b"), ("userId", "7"))))
    assert told == of_text(r"uid=7+cn=a\2CO=b,dc=org") == of_text(r"CN=a\,O\=b+UID=7,DC=org")
    assert told != of_text("CN=a,O=b+UID=7,DC=org")
    assert of_text(r"CN=a\\2C") == of_certificate(((("commonName", "a\\2C"),),))
