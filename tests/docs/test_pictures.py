"""The pictures of the docs show the pages as they are."""

from generate.screenshots import MADE_FROM, looks


def test_no_picture_is_older_than_the_templates_and_styles_of_its_page() -> None:
    assert MADE_FROM.read_text().strip() == looks(), "the pages look another way: make pictures"
