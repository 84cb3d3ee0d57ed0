"""The members as a copy of the nodelist's document has them."""

import hashlib

from coordinator.copies import Copy
from tasks.notes import DATED, MEMBER, ours_of
from tasks.sources import Listed

Raw = tuple[str, str | None]


class View:
    """Of copies, one after another: only what is another than in the last one is made anew."""

    def __init__(self) -> None:
        self._last: tuple[int, dict[str, Raw], dict[str, Listed], str] = (-1, {}, {}, "")

    def of(self, copy: Copy) -> tuple[dict[str, Listed], str]:
        """By member id; and a checksum of all but the dates."""
        version, before, known, said = self._last
        if copy.version != version:
            raws = {
                entry.removeprefix(MEMBER): (raw, copy.state.get(DATED + entry.removeprefix(MEMBER)))
                for entry, raw in sorted(copy.state.items())
                if entry.startswith(MEMBER) and not raw.endswith(" null")
            }
            changed = {node_id for node_id, raw in raws.items() if before.get(node_id) != raw}
            made = {node_id: ours_of(copy, node_id) if node_id in changed else known[node_id] for node_id in raws}
            listed = {node_id: one for node_id, one in made.items() if one}
            if raws.keys() != before.keys() or any(before[one][0] != raws[one][0] for one in changed):
                text = "\n".join(f"{node_id} {raw}" for node_id, (raw, _) in sorted(raws.items()))
                said = hashlib.sha256(text.encode()).hexdigest()
            self._last = copy.version, raws, listed, said
        return self._last[2], self._last[3]
