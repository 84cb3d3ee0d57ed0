"""Deliveries are made whole, once, and the same each time."""

import os
import time
from pathlib import Path

import pytest
from click.testing import CliRunner
from PIL import Image, features

from examples.batches.deliver import DEFECTS, deliver, items, main, mend
from examples.batches.delivery import ACKNOWLEDGED, Delivery, ManifestUnreadable
from examples.batches.files import LEFTOVER, digest, keep_only, put
from tests.examples.conftest import ITEM, content


def test_pages_are_real_jpeg_2000_of_a_size_and_a_grey() -> None:
    assert features.check("jpg_2000")


def test_a_delivery_holds_pages_that_its_manifest_and_its_metadata_describe(delivery: Delivery) -> None:
    assert delivery.pages() == [f"B400022028241-{number:04}" for number in range(1, 5)]
    assert delivery.manifest() == {name: digest(delivery.read(name)) for name in delivery.names()}
    with Image.open(delivery.path / "B400022028241-0001.jp2") as page:
        assert (page.format, page.mode, page.size) == ("JPEG2000", "L", (96, 128))


def test_the_same_name_gives_the_same_delivery_and_another_name_another(tmp_path: Path) -> None:
    one, again, other = (deliver(tmp_path / name, item) for name, item in (("a", ITEM), ("b", ITEM), ("a", "B2-RT1")))
    assert content(one) == content(again)
    assert not set(content(one).values()) & set(content(other).values()) - {b""}


@pytest.mark.parametrize("defect", DEFECTS)
def test_a_mended_delivery_is_as_if_it_had_had_no_defect(tmp_path: Path, defect: str) -> None:
    right, wrong = deliver(tmp_path / "a", ITEM), deliver(tmp_path / "b", ITEM, defect=defect)
    assert content(wrong) != content(right)
    mend(wrong)
    assert content(wrong) == content(right)


def test_an_acknowledged_delivery_stays_as_it_is(tmp_path: Path) -> None:
    before = content(deliver(tmp_path, ITEM, defect="missing"))
    assert content(deliver(tmp_path, ITEM)) == before


def test_a_delivery_that_was_broken_off_is_completed(tmp_path: Path) -> None:
    whole = content(deliver(tmp_path / "whole", ITEM))
    put(tmp_path / ITEM / "B400022028241-0001.jp2", b"half")
    put(tmp_path / ITEM / "B400022028241-0009.jp2", b"of another run")
    assert content(deliver(tmp_path, ITEM)) == whole


def test_the_script_delivers_with_defects_and_mends_them(tmp_path: Path) -> None:
    argv = [str(tmp_path), "--batches", "3", "--pages", "2"]
    told = CliRunner().invoke(main, [*argv, "--defect", "2=missing"])
    assert told.stdout.split() == [str(tmp_path / item) for item in items(3)]
    counts = [len(Delivery(tmp_path / item).pages()) for item in items(3)]
    assert counts == [2, 1, 2]
    assert all((tmp_path / item / ACKNOWLEDGED).exists() for item in items(3))
    assert CliRunner().invoke(main, [*argv, "--mend"]).exit_code == 0
    assert len(Delivery(tmp_path / items(3)[1]).pages()) == 2


def test_an_unknown_defect_is_refused_with_the_known_ones(tmp_path: Path) -> None:
    told = CliRunner().invoke(main, [str(tmp_path), "--defect", "1=dust"])
    assert told.exit_code == 2
    assert "checksum, missing, malformed, truncated, size" in told.stderr
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("line", ["no checksum", "0" * 64 + "  ../outside.jp2", "0" * 64 + "  a\n" + "0" * 64 + "  a"])
def test_a_manifest_that_is_none_is_refused(delivery: Delivery, line: str) -> None:
    put(delivery.path / "manifest-sha256.txt", line.encode())
    with pytest.raises(ManifestUnreadable, match="line"):
        delivery.manifest()


def test_new_files_of_killed_runs_go_after_an_hour_and_those_of_a_living_run_stay(tmp_path: Path) -> None:

    for name, age in ((".a.1.new", LEFTOVER + 60), (".a.2.new", 0.0), ("a", 0.0), ("b", 0.0)):
        (tmp_path / name).write_bytes(b"")
        os.utime(tmp_path / name, (time.time() - age,) * 2)
    keep_only(tmp_path, ["a"])
    assert {path.name for path in tmp_path.iterdir()} == {".a.2.new", "a"}
