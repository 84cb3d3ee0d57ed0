"""The plain model of documents, and the player of their recorded steps.

A version is committed once all members have it on their disks. What only Redis knows is taken from the recording: which
process it is, and how many listen to what it publishes. Of those that nobody hears, its reply tells the names.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable
from contextlib import suppress
from hashlib import sha1
from json import loads
from typing import Any

from proof.model.lanes import Lanes
from proof.model.raw import Dump
from proof.steps import asked
from proof.steps.playing import Deviation, Playing
from proof.steps.recording import Look, Step
from proof.steps.versions import Document, Update, Version

GRACE, LATE = 1_500, 50  # ms without a new version, and how much later Redis may have begun to count
PAUSE, AWAY, ALONE = 500, 3_000, 900  # ms behind the first acknowledgement; until Redis was away; without members
KEPT, SHORT = 3_600_000, 60_000  # ms that outcomes are known, and of which nobody can tell when a dump is made
BATCH, HISTORY = 256, 100
FADING = ("update", "out", "grace", "answer", "silence")


class Documents(Playing):
    """`outcomes`: of updates; `reasons`: why somebody is out of a set; each with the time until which it is known.

    Of the step: `looked`: whether it read the clock; `process`: whose it is, "" = it did not ask; `heard`: by how many,
    each time that it published.
    """

    def __init__(self) -> None:
        super().__init__(Lanes())
        self.documents: dict[str, Document] = defaultdict(Document)
        self.outcomes: dict[str, tuple[str, int]] = {}
        self.reasons: dict[str, tuple[str, int]] = {}
        self.looked, self.process, self.heard = False, "", list[int]()

    def _go_to(self, step: Step) -> None:
        super()._go_to(step)
        self.looked = step.time is not None
        self.process = next((told for told in step.outside if told.startswith("run_id")), "")
        self.heard = [int(told) for told in step.outside if told.isdigit()]
        self._lapse()

    def _lapse(self) -> None:
        """What is over does not come again where the clock goes back."""
        wall = self.model.wall
        self.outcomes = {name: of for name, of in self.outcomes.items() if wall <= of[1]}
        self.reasons = {name: of for name, of in self.reasons.items() if wall <= of[1]}
        for doc in self.documents.values():
            if wall > doc.grace[1]:
                doc.grace = (0, 0)

    def _reply_of(self, handler: Callable[..., Any], args: list[str]) -> Any:
        reply = handler(*args)
        if self.heard:
            raise Deviation(f"it should answer {reply}, and publishes {len(self.heard)} times more than it should")
        return reply

    def _publish(self) -> int:
        """By how many it is heard."""
        if not self.heard:
            raise Deviation("it does not publish what it should")
        return self.heard.pop(0)

    def _told(self, part: int) -> Any:
        """A part of the reply to a report."""
        return self.told[part] if isinstance(self.told, list) and part < len(self.told) else ""

    @property
    def _now(self) -> int:
        if not self.looked:
            raise Deviation("it goes by a clock that it did not read")
        return self.model.now

    def differences(self, look: Look) -> list[str]:
        dump = Dump(look.rows)
        ours, theirs = _of_model(self), _of_redis(dump)
        found = [
            f"{part} {name}: should be {ours[part].get(name)}, is {theirs[part].get(name)}"
            for part in ours
            for name in sorted({*ours[part], *theirs[part]})
            if ours[part].get(name) != theirs[part].get(name)
        ]
        return found + _of_fading(self, look.time // 1000, dump)

    # Steps

    def document_ask(self, name: str, text: str) -> Any:
        doc, update = self.documents[name], loads(text)
        if (known := self._outcome(update["id"])) in ("", "asked"):
            if not known:
                self._note(update, "asked")
                doc.asked.append(update)
            self._prepare(doc)
            if known:
                self._commit(name)
        return self._outcome(update["id"])

    def document_report(
        self, name: str, member: str, version: str, sha: str, prepared: str, prepared_sha: str, silence: str
    ) -> Any:
        doc, disk = self.documents[name], (int(version), sha, int(prepared), prepared_sha)
        self._prepare(doc)
        if (what := doc.verdict(*disk)) == "kept":
            self._let_in(name, member)
            if doc.next and int(prepared):
                doc.has[member] = prepared_sha
                doc.next.first = doc.next.first or self._now
                self._commit(name)
                what = doc.verdict(*disk)
        out = self._put_out_silent(name, int(silence))
        return [what, doc.version, doc.sha, doc.next.number if doc.next else "", self._updates(doc, what), out]

    def document_leave(self, name: str, member: str, why: str) -> Any:
        was = self._put_out(name, member, why)
        self._commit(name)
        return was

    def document_restore(
        self, name: str, member: str, version: str, sha: str, upon: str, upon_sha: str, *words: str
    ) -> Any:
        doc, number, entries = self.documents[name], int(version), asked.pairs(words)
        if int(upon) <= doc.version and not doc.is_next(number, int(upon), upon_sha):
            return 0
        doc.behind |= {entry: version for entry, text in entries.items() if doc.entries.get(entry) != text}
        for update in [*(doc.next.updates if doc.next else ()), *doc.asked]:
            self.outcomes.pop(update["id"], None)
        for other in [*doc.members]:
            self._put_out(name, other, "")
        doc.version, doc.sha, doc.entries = number, sha, entries
        doc.next, doc.asked, doc.has = None, [], {}
        self._let_in(name, member)
        if self._is_settled(doc):
            self._grant_grace(doc)
        self.model.fence, self.stored = max(self.model.fence, number), max(self.stored, number)
        self._publish()
        return 1

    def document_followed(self, name: str, entry: str, version: str) -> Any:
        behind = self.documents[name].behind
        if behind.get(entry) != version:
            return 0
        del behind[entry]
        return 1

    def document_note(self, name: str, about: str, before: str, after: str) -> Any:
        notes = self.documents[name].notes
        has = notes.get(about, "")
        if has not in (before, after):
            return 0
        notes[about] = after
        if not after:
            del notes[about]
        return 1

    # Updates

    def _outcome(self, update: str) -> str:
        return self.outcomes[update][0] if update in self.outcomes else ""

    def _note(self, update: Update, outcome: str) -> None:
        self.outcomes[update["id"]] = outcome, self.model.wall + KEPT

    def _updates(self, doc: Document, what: str) -> Any:
        """As JSON, in whichever order its names are."""
        if what != "prepare" or not doc.next:
            return ""
        with suppress(ValueError, TypeError):
            if loads(self._told(4)) == doc.next.updates:
                return self._told(4)
        return doc.next.updates

    def _prepare(self, doc: Document) -> None:
        """All updates that wait become the next version, if none is under way."""
        self._is_settled(doc)
        while doc.asked and not doc.next and not self._is_in_grace(doc):
            updates, doc.asked, state = doc.asked[:BATCH], doc.asked[BATCH:], dict[str, str]()
            made = [update for update in updates if not self._is_refused(doc, update, state)]
            if made:
                doc.next = Version(self.model.next_fence(), made, self._now)
                self._publish()

    def _is_refused(self, doc: Document, update: Update, state: dict[str, str]) -> bool:
        """Gives each change its fence. `state`: entries as the updates before leave them."""
        after, refusals, made = dict[str, str](), [], True
        for change in update["changes"]:
            entry, text, read = change
            has = state.get(entry) or doc.entries.get(entry, "0 null")
            seen = has.partition(" ")[0]
            fence = update["fence"] or seen
            change.append(fence)
            after[entry] = f"{fence} {text}"
            made = made and entry not in state and has == after[entry]
            if int(fence) < int(seen):
                refusals.append(f"stale {seen} {entry}")
            elif read and read != sha1(has.encode(errors="surrogateescape")).hexdigest():
                refusals.append(f"changed {seen} {entry}")
        if made:
            self._note(update, f"committed {doc.version}")
        elif refusals:
            self._note(update, refusals[0])
        else:
            state |= after
        return made or bool(refusals)

    def _commit(self, name: str) -> None:
        """If each member has it; where nobody keeps the document, once a member would have come."""
        doc = self.documents[name]
        made = doc.next
        if not made or doc.members - doc.has.keys() or (not doc.members and self._now < made.begun + ALONE):
            return
        doc.version, doc.sha = made.number, self._agreed(name)
        for update in made.updates:
            entries = {entry: f"{fence} {text}" for entry, text, _, fence in update["changes"]}
            doc.entries |= entries
            if update["follow"]:
                doc.behind |= dict.fromkeys(entries, str(doc.version))
            about = {"version": str(doc.version), "at": self.model.wall, "fence": update["changes"][0][3]}
            about |= {"entries": [*entries], "who": update["who"], "why": update["why"]}
            doc.history = [about, *doc.history][:HISTORY]
            self._note(update, f"committed {doc.version}")
        doc.next, doc.has = None, {}
        self._publish()
        self._prepare(doc)

    def _agreed(self, name: str) -> str:
        """The checksum that most members have, of equally many the least one; the others are put out."""
        has = dict(self.documents[name].has)
        votes = Counter(has.values())
        best = min(votes, key=lambda sha: (-votes[sha], sha), default="-")
        for member, sha in has.items():
            if sha != best:
                self._put_out(name, member, "it made another version than the others")
        return best

    # Members

    def _let_in(self, name: str, member: str) -> None:
        self.documents[name].members.add(member)
        self.reasons.pop(f"{name}:{member}", None)

    def _put_out(self, name: str, member: str, why: str) -> bool:
        doc = self.documents[name]
        was = member in doc.members
        doc.members.discard(member)
        doc.has.pop(member, None)
        if why:
            self.reasons[f"{name}:{member}"] = why, self.model.wall + KEPT
        return was

    def _put_out_silent(self, name: str, silence: int) -> list[str]:
        """Who has not acknowledged while another did: after a while all, before that those whom nobody hears."""
        doc, told = self.documents[name], [*self._told(5)]
        made = doc.next
        if not made or not self._is_settled(doc) or self._is_in_grace(doc):
            return []
        heard, made.heard = made.heard or made.begun, self._now
        if self._now > heard + AWAY:
            made.begun = self._now
            return []
        out, why = set[str](), ""
        if made.first:
            out, why = doc.members - doc.has.keys(), "it was silent"
            if self._now < max(made.begun + silence, made.first + PAUSE):
                gone, why = [self._publish() for _ in out].count(0), "it was gone"
                if gone != len(told) or not out.issuperset(told):
                    raise Deviation(f"{gone} of {sorted(out)} are gone, and it puts out {told}")
                out = {*told}
        for member in out:
            self._put_out(name, member, why)
        self._commit(name)
        return told if sorted(told) == sorted(out) else sorted(out)

    # Starts of a server

    def _is_settled(self, doc: Document) -> bool:
        """False at the first look of a server."""
        if not self.process:
            raise Deviation("it does not look which server it is")
        if doc.server == self.process:
            return True
        doc.server, doc.grace = self.process, (0, 0)
        self._grant_grace(doc)
        return False

    def _grant_grace(self, doc: Document) -> None:
        """Unless it has one."""
        wall, (least, latest) = self.model.wall, doc.grace
        if wall > least:
            doc.grace = (least if wall <= latest else wall + GRACE), wall + GRACE + LATE

    def _is_in_grace(self, doc: Document) -> bool:
        """Where it may just have ended: whether it goes on to what needs the clock."""
        wall, (least, latest) = self.model.wall, doc.grace
        if least < wall <= latest:
            doc.grace = (0, 0) if self.looked else (wall, latest)
        return wall <= doc.grace[0]


def _of_model(player: Documents) -> dict[str, dict[str, Any]]:
    docs, model = player.documents, player.model
    parts: dict[str, dict[str, Any]] = {
        "pointer": {name: f"{doc.version} {doc.sha}" for name, doc in docs.items() if doc.version},
        "document": {name: doc.entries for name, doc in docs.items()},
        "asked": {name: doc.asked for name, doc in docs.items()},
        "prepare": {name: _under_way(doc, doc.next) for name, doc in docs.items() if doc.next},
        "acked": {name: doc.has for name, doc in docs.items()},
        "replicas": {name: doc.members for name, doc in docs.items()},
        "behind": {name: doc.behind for name, doc in docs.items()},
        "stored": {name: doc.notes for name, doc in docs.items()},
        "history": {name: doc.history for name, doc in docs.items()},
        "server": {name: doc.server.removeprefix("run_id:") for name, doc in docs.items()},
    }
    found = {part: {name: held for name, held in of.items() if held} for part, of in parts.items()}
    clock = f"{model.last} {model.now - player.wall} {model.noted} {model.away} {model.gap}"
    return found | {"fence": {"": str(player.stored or "")}, "clock": {"": clock if player.wall else ""}}


def _under_way(doc: Document, made: Version) -> dict[str, Any]:
    times = {"begun": made.begun, "first": made.first, "heard": made.heard}
    found = {"version": str(made.number), "base": str(doc.version), "updates": made.updates}
    return found | {name: str(at) for name, at in times.items() if at}


def _of_redis(dump: Dump) -> dict[str, dict[str, Any]]:
    kinds = ("pointer", "document", "acked", "replicas", "behind", "stored", "server")
    found = {kind: dump.under(kind) for kind in kinds}
    found |= {kind: {name: [*map(loads, of)] for name, of in dump.under(kind).items()} for kind in ("asked", "history")}
    under_way = dump.under("prepare").items()
    found["prepare"] = {name: made | {"updates": loads(made.get("updates", "[]"))} for name, made in under_way}
    return found | {kind: {"": dump.held.get(kind, "")} for kind in ("fence", "clock")}


def _fades(name: str) -> bool:
    return name.partition(":")[0] in FADING


def _of_fading(player: Documents, wall: int, dump: Dump) -> list[str]:
    """What fades just then may be there or not."""
    found = [
        f"{name} has {'no' if _fades(name) else 'a'} ttl" for name in dump.held if _fades(name) != (name in dump.fading)
    ]
    for kind, of in (("update", player.outcomes), ("out", player.reasons)):
        theirs = dump.under(kind)
        sure = {name: text for name, (text, till) in of.items() if till > wall + SHORT}
        known = {name: text for name, (text, _) in of.items() if name in theirs} | sure
        for name in sorted({*known, *theirs}):
            if known.get(name) != theirs.get(name):
                found.append(f"{kind} {name}: should be {known.get(name)}, is {theirs.get(name)}")
    for name, doc in player.documents.items():
        least, latest = doc.grace
        if not least < wall <= latest and (wall <= least) != (name in dump.under("grace")):
            found.append(f"grace {name}: should last until {least}, and it is {wall}")
    return found
