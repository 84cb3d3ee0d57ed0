"""The drawn pictures of docs/, as SVG."""

from __future__ import annotations

from collections.abc import Callable

from generate.drawing import Drawing


def fleet() -> str:
    """A program, beats, Redis, and two nodes."""
    to = Drawing(900, 440, "A fleet: programs and beats, Redis and two coordinating nodes")
    to.box(24, 84, 140, 64, "your program", "submit()")
    to.box(24, 292, 140, 64, "beats", "each tick once")
    to.store(330, 60, 180, 320, "Redis", "lanes, jobs, leases,", "documents")
    for top, name in ((24, "coordinating node 1"), (232, "coordinating node 2")):
        to.frame(640, top, 236, 184, name)
        to.box(656, top + 36, 92, 42, "runner")
        to.box(770, top + 36, 92, 42, "worker")
        to.box(656, top + 124, 92, 42, "clock")
        to.box(770, top + 124, 92, 42, "maintenance")
        to.arrow((770, top + 57), (750, top + 57))
        to.arrow(
            (702, top + 124), (702, top + 101), (816, top + 101), (816, top + 80), label="3  wakes", at=(759, top + 97)
        )
        to.arrow((748, top + 145), (768, top + 145))
    to.arrow((164, 116), (328, 116), label="1  the job, into its lines")
    to.arrow((164, 324), (328, 324), label="ticks")
    to.arrow((656, 81), (512, 81), label="4  claim, run,\nfinish and claim", at=(576, 57))
    to.arrow((512, 160), (654, 160), label="2  a wake-up", at=(576, 152))
    to.arrow((656, 180), (512, 180), label="renew leases, sweep", at=(576, 198))
    to.arrow((512, 324), (638, 324))
    to.arrow((640, 344), (512, 344))
    return to.svg()


def paused() -> str:
    """A holder that stands still past its lease."""
    to = Drawing(900, 384, "Process A stands still past its lease; the store refuses its late write by the fence")
    rows = {"process A": 60, "Redis": 150, "process B": 240, "your store": 330}
    for name, y in rows.items():
        to.text(20, y + 5, name, kind="name", start="start")
        to.line((110, y), (880, y))
    to.box(130, 40, 110, 40, "works")
    to.box(240, 40, 460, 40, "stands still", kind="quiet")
    to.box(700, 40, 110, 40, "goes on")
    to.box(130, 132, 250, 36, "lease of A", kind="store")
    to.box(430, 132, 250, 36, "lease of B", kind="store")
    to.box(430, 220, 200, 40, "works")
    to.box(536, 310, 110, 40, "takes 34", kind="good")
    to.box(694, 310, 122, 40, "refuses 33", kind="bad")
    to.arrow((146, 130), (146, 82), label="claim: fence 33", at=(152, 112), start="start")
    to.text(380, 120, "no sign of life: the lease ends", start="middle")
    to.arrow((446, 170), (446, 218), label="claim: fence 34", at=(452, 200), start="start")
    to.arrow((591, 260), (591, 308), label="write, fence 34", at=(583, 290), start="end")
    to.arrow((755, 80), (755, 308), label="write, fence 33", at=(763, 112), start="start")
    to.text(880, 376, "time", start="end")
    return to.svg()


def states() -> str:
    """The states of a job, and the ways between them."""
    to = Drawing(960, 500, "The states of a job")
    _boxes_of_states(to)
    to.arrow((278, 20), (278, 103), label="submit", at=(284, 34), start="start")
    to.arrow((152, 61), (218, 112), label="flushed", at=(200, 74))
    to.arrow((152, 119), (218, 125))
    to.arrow((152, 177), (218, 140), label="its time\nhas come", at=(160, 202), start="start")
    to.arrow((152, 276), (266, 149), label="its causes\nhave ended", at=(188, 266), start="start")
    to.arrow((336, 126), (388, 126), label="in front", at=(362, 116))
    to.curve((506, 120), (538, 108), (568, 120), label="claimed", at=(538, 104))
    to.curve((568, 134), (538, 148), (508, 134), label="next step,\nlost attempt", at=(538, 164))
    to.arrow((686, 126), (810, 126), label="well")
    to.arrow((628, 105), (628, 66), label="sub-results", at=(634, 90), start="start")
    to.curve((686, 43), (800, 48), (850, 103), label="all ended well", at=(806, 48))
    to.curve((568, 43), (478, 46), (448, 103), label="next step", at=(488, 44))
    to.arrow((590, 147), (436, 257), label="raised", at=(503, 210))
    to.arrow((372, 256), (424, 149), label="due, or\nretried", at=(362, 200), start="middle")
    to.arrow((610, 147), (552, 256), label="hold", at=(596, 206))
    to.curve((490, 256), (452, 214), (452, 149), label="retried", at=(476, 182))
    to.arrow((560, 300), (636, 338), label="cancel", at=(572, 330))
    to.arrow((650, 147), (672, 338), label="nothing\nis left", at=(662, 234))
    to.arrow((682, 147), (810, 230), label="no rollback", at=(760, 184))
    for row in range(1, 5):
        to.arrow((726, 361), (810, 235 + 48 * row))
    to.frame(796, 178, 150, 282, "ended badly")
    again = "retried by an operator: in line again, under its own id"
    to.arrow((796, 440), (278, 440), (278, 149), label=again, at=(540, 432))
    note = "Any job that is not over may be cancelled or expire. A parked job goes on as one that ran. "
    note += "A blocked job may be held or fail with a cause."
    to.text(36, 482, note, start="start")
    return to.svg()


def _boxes_of_states(to: Drawing) -> None:
    for name, x, y in (
        ("collected", 36, 40), ("collecting", 36, 98), ("scheduled", 36, 156), ("blocked", 36, 255),
        ("waiting", 220, 105), ("ready", 390, 105),
        ("running", 570, 105), ("parked", 570, 22), ("retrying", 330, 258), ("held", 480, 258),
        ("rolling_back", 610, 340),
    ):  # fmt: skip
        to.box(x, y, 116, 42, name)
    to.box(812, 105, 116, 42, "succeeded", kind="good")
    for row, name in enumerate(("failed", "rolled_back", "double_fault", "cancelled", "expired")):
        to.box(812, 216 + 48 * row, 116, 38, name, kind="bad")


def pipeline() -> str:
    """The stages of the example: each waits for the events before it."""
    to = Drawing(900, 316, "The stages of the example; an arrow leads from an event to a stage that waits for it")
    for name, x, y, width in (
        ("Data_Received", 24, 64, 124), ("Metadata_Archived", 190, 64, 152), ("Data_Archived", 384, 64, 124),
        ("Structure_Checked", 550, 64, 150), ("JPylyzed", 550, 154, 110), ("Histogrammed", 700, 154, 130),
        ("Metadata_checked", 356, 154, 150), ("Editions_relations_generated", 60, 154, 236),
        ("Manual_QA_Flagged", 430, 248, 160), ("Warning_Email_Sent", 660, 248, 160),
        ("Roundtrip_Approved", 222, 248, 160), ("Leftovers_removed", 24, 248, 150),
    ):  # fmt: skip
        to.box(x, y, width, 42, name)
    for points in (
        ((148, 85), (188, 85)), ((342, 85), (382, 85)), ((508, 85), (548, 85)), ((605, 106), (605, 152)),
        ((680, 106), (740, 152)), ((550, 175), (508, 175)), ((356, 175), (298, 175)), ((450, 196), (490, 246)),
        ((740, 196), (570, 246)), ((590, 269), (658, 269)), ((430, 269), (384, 269)), ((222, 269), (176, 269)),
    ):  # fmt: skip
        to.arrow(*points)
    to.curve((266, 62), (430, 8), (600, 62))
    return to.svg()


PICTURES: dict[str, Callable[[], str]] = {
    "fleet.svg": fleet,
    "paused.svg": paused,
    "pipeline.svg": pipeline,
    "states.svg": states,
}
