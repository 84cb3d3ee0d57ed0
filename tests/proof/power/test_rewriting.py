"""What a real server has on its disk while it writes its file anew."""

from pathlib import Path

from proof.power.cases import REWRITE, Runner, of_moment
from proof.power.rewriting import moments


def test_whenever_the_machine_ends_all_that_was_acknowledged_is_kept(program: str, tmp_path: Path) -> None:
    written, kept = moments(tmp_path, program)
    lists = [one.about for one in kept]
    assert any("beside: " in one and ".incr.aof" in one.partition("beside")[2] for one in lists), "none is too early"
    assert any(one.partition(";")[0].count(".base.rdb") == 2 for one in lists), "none has the old base and the new one"
    assert len({one.acknowledged for one in kept}) > 1, "no step was taken meanwhile"
    different = {one.about: one for one in kept}.values()
    played = list(Runner(tmp_path, program).run(of_moment(one, REWRITE, written) for one in different))
    assert [one for one in played if one.came not in ("starts: all", "starts: all before it") or one.goes] == []
