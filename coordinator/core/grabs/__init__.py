"""Grabs: one of many processes works on an instance of a key, such as one day of a daily report.

    with coordinator.grab("report", "2026-11-28", "host-1") as grab:
        if grab.won:
            grab.complete(make_report())

By default, a process that does not win waits on entering the block, and takes over if the winner dies or fails: then
`grab.won` is true there, too.
"""
