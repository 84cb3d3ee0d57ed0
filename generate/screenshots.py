"""Write docs/screens/*.png, the dashboard over a busy fleet: make pictures

It starts a Redis, two workers and the dashboard, keeps them busy for a while, and looks at the pages with Chromium; and
so beside the demos, for the pages of the service.
"""

import os
import random
import shlex
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from hashlib import sha256
from pathlib import Path

from celery import chain
from playwright.sync_api import Page, sync_playwright

from coordinator.local.redis import EmbeddedRedis, free_port

ROOT = Path(__file__).parents[1]
SCREENS = ROOT / "docs" / "screens"
MADE_FROM = SCREENS / "made-from.sha256"
TOKEN = "only-for-these-pictures"
WIDE, HIGH = 1280, 800
STOCK, LABEL = "stock/shelf-7", "order/1031"


@contextmanager
def running(*commands: list[str], env: Mapping[str, str] | None = None) -> Iterator[None]:
    no = subprocess.DEVNULL
    started = [subprocess.Popen(command, cwd=ROOT, env=env, stdout=no, stderr=no) for command in commands]
    try:
        yield
    finally:
        for process in started:
            process.terminate()
        for process in started:
            process.wait(300)  # a busy machine


@contextmanager
def page_of(site: str) -> Iterator[Page]:
    with sync_playwright() as player:
        place = shutil.which("chromium-headless-shell") or shutil.which("chromium")
        browser = player.chromium.launch(executable_path=place, args=["--no-sandbox"])
        page = browser.new_context(viewport={"width": WIDE, "height": HIGH}).new_page()
        page.goto(f"{site}/?token={TOKEN}")
        yield page
        browser.close()


def answers(port: str) -> bool:
    with suppress(OSError), socket.create_connection(("127.0.0.1", int(port))):
        return True
    return False


def shoot(page: Page, name: str, address: str) -> None:
    page.goto(address)
    page.wait_for_timeout(2500)
    page.screenshot(path=SCREENS / f"{name}.png")
    print(f"{name}.png: {(SCREENS / f'{name}.png').stat().st_size // 1024} KiB")


def looks() -> str:
    """Return a digest of what the pages look like: their templates and style sheets. A test compares it with the one of
    the pictures (MADE_FROM).
    """
    pages = [ROOT / "coordinator/ops/dashboard", ROOT / "tasks/pages"]
    files = sorted(path for page in pages for kind in ("*.html", "*.css") for path in page.rglob(kind))
    own = (path for path in files if "vendor" not in path.parts)
    return sha256(b"".join(path.name.encode() + path.read_bytes() for path in own)).hexdigest()


def main() -> None:
    SCREENS.mkdir(exist_ok=True)
    before = looks()
    the_service("members", "tr:nth-child(3) td:nth-child(4) time")  # the third was harvested, too
    the_service("items", "td .failed", "--batches")
    the_shop()
    MADE_FROM.write_text(f"{before}\n")


def the_service(name: str, has: str, *options: str) -> None:
    """The page of this name, beside a demo, once it has something to show."""
    with tempfile.TemporaryDirectory() as folder:
        demo = [sys.executable, "-m", "examples.demo", "--no-flower", "--data", folder, *options]
        with running(demo):
            while not (file := Path(folder, "environment")).exists() or not file.read_text():
                time.sleep(0.2)
            words = [word for word in shlex.split(file.read_text()) if "=" in word]
            own = os.environ | dict(word.split("=", 1) for word in words)
            if options:
                own["TASKS_COMPONENTS"] = "examples.batches.pipeline"
            port = str(free_port())
            dashboard = [sys.executable, "-m", "coordinator", "-A", "tasks", "dashboard", "--port", port]
            with running([*dashboard, "--token", TOKEN], env=own):
                while not answers(port):
                    time.sleep(0.5)
                with page_of(f"http://127.0.0.1:{port}") as page:
                    page.goto(f"http://127.0.0.1:{port}/{name}")
                    page.locator(has).first.wait_for(timeout=600_000)  # the page is live
                    shoot(page, name, page.url)


def the_shop() -> None:
    with tempfile.TemporaryDirectory() as folder, EmbeddedRedis(folder) as redis:
        os.environ |= {"SHOP_BROKER": redis.url.removesuffix("/0") + "/1", "COORDINATOR_URL": redis.url}
        port = str(free_port())
        celery = [sys.executable, "-m", "celery", "-A", "generate.busy_shop", "worker", "-c", "3"]
        dashboard = [sys.executable, "-m", "coordinator", "-A", "generate.busy_shop", "dashboard", "--port", port]
        commands = [*celery, "-n", "n1@alpha"], [*celery, "-n", "n2@beta"], [*dashboard, "--token", TOKEN]
        with running(*commands):
            photograph(f"http://127.0.0.1:{port}")


def photograph(site: str) -> None:
    from generate import busy_shop as shop  # it reads the environment

    coordinator = shop.coordinator
    while len(coordinator.nodes()) < 2:
        time.sleep(0.2)
    over, numbers = threading.Event(), iter(range(1000, 10**6))

    def load() -> None:
        while not over.wait(0.06):
            order = next(numbers)
            coordinator.submit(f"customer/{random.randrange(60)}", chain(shop.charge.s(order), shop.ship.si(order)))

    threading.Thread(target=load, daemon=True).start()
    counts = (60, 20, 50, 40, 400, 400, 400, 400)  # the first are over when the pictures are made: a lane has last runs
    waiting = [coordinator.submit(STOCK, shop.count.s("shelf-7", items)).id for items in counts]
    coordinator.pause("customer/7", why="a refund is on its way", by="tim", ticket="OPS-308")
    coordinator.quota("till", concurrency=3, why="three clerks", by="ulla")
    label = coordinator.submit(LABEL, shop.print_label.s(1031), needs=["printer"]).id
    coordinator.submit("ledger", shop.charge.s(17), on_failure="hold")
    time.sleep(100)
    coordinator.move(waiting[-1], priority=5, why="the auditor waits", by="ulla", ticket="OPS-311")
    pages = {
        "overview": "/", "lane": f"/lane?key={STOCK}", "why": f"/job?id={waiting[5]}",
        "waits": f"/job?id={label}", "failed": "/jobs?state=bad", "actions": "/actions", "tenants": "/tenants",
    }  # fmt: skip
    with page_of(site) as page:
        for name, path in pages.items():
            shoot(page, name, site + path)
    over.set()
    for job_id in waiting:
        coordinator.cancel(job_id, why="the pictures are made")


if __name__ == "__main__":
    main()
