"""The app of `examples/moving`, on the test's Redis: its work lasts until the test lets it go."""

import os
import signal
import sys
import time

from tests.harness.apps.stamps import opened, stamps_in

for name in [name for name in sys.modules if name.startswith("examples.moving")]:
    del sys.modules[name]  # of the installation before
os.environ["SHOP_REDIS"] = os.environ["TEST_BROKER"].rpartition("/")[0]
os.environ["SHOP_PREFIX"] = os.environ["TEST_PREFIX"] + "."

from examples.moving import work  # noqa: E402

_prefix = os.environ["TEST_PREFIX"]
_log = opened()
stamp = stamps_in(_log)


def held(name: str) -> str:
    """Until the test says `go`. With `quick` in its name it waits for nobody, with `deadly` its first process dies."""
    stamp(name, "begin")
    if "deadly" in name and _log.incr(f"{_prefix}.died.{name}") == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    while not ("quick" in name or "deadly" in name or _log.exists(f"{_prefix}.go.{name}")):
        time.sleep(0.01)
    stamp(name, "end")
    return name


work.work = held

from examples.moving import shop  # noqa: E402

app, coordinator = shop.app, shop.coordinator
app.conf.worker_hijack_root_logger = False
app.loader.import_default_modules()
