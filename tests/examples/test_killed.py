"""A work that is killed at any of its steps leaves whole files only, and its next run ends as if nothing had been."""

import subprocess
import sys
from pathlib import Path

from tests.examples.conftest import WORK
from tests.harness.command import ROOT, environment

# One delivery goes through all works. Before each of them, forks work on copies of it, and each is killed at a later
# step than the one before: before it makes, renames or removes a file, or within a write. The last one lives.
KILLED_AT_EACH_STEP = """
import os, re, resource, signal, shutil, sys
from pathlib import Path
from examples.batches.deliver import deliver
from examples.batches.delivery import Delivery
from examples.batches.place import Place
from tests.examples.conftest import ITEM, WORK, content

folder = Path(sys.argv[1])

def worked(name, root):
    place = Place(root, patience=0)
    failures = WORK[name](Delivery(place.deliveries / ITEM), place)
    assert not failures, failures

def whole_files(root):
    # without the new ones of killed runs, and without the time
    files = {name: body for name, body in content(root).items() if not name.endswith(".new")}
    return {name: re.sub(rb'"since": [0-9.]+', b'"since": 0', body) for name, body in files.items()}

def killed_at(step, name, root):
    seen = 0
    def count(event, args):
        nonlocal seen
        opened = event == "open" and args[2] & (os.O_WRONLY | os.O_CREAT)
        if (opened or event in ("os.rename", "os.remove", "os.mkdir")) and str(root) in str(args[0]):
            seen += 1
            if seen > step and opened:  # the system kills it when it writes more than ten bytes
                signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
                resource.setrlimit(resource.RLIMIT_FSIZE, (10, 10))
            elif seen > step:
                os.kill(os.getpid(), signal.SIGKILL)
    child = os.fork()
    if not child:
        sys.addaudithook(count)
        try:
            worked(name, root)
        except BaseException as error:
            print(name, error, file=sys.stderr, flush=True)
            os._exit(1)
        os._exit(0)
    status = os.waitpid(child, 0)[1]
    assert status == 0 or os.WTERMSIG(status) in (signal.SIGKILL, signal.SIGXFSZ), (name, step, status)
    return status

deliver(Place(folder / "whole").deliveries, ITEM, pages=2)
for name in WORK:
    shutil.copytree(folder / "whole", folder / "before")
    worked(name, folder / "whole")
    whole, step, status = whole_files(folder / "whole"), 0, 1
    while status:
        root = shutil.copytree(folder / "before", folder / f"{name}-{step}")
        status = killed_at(step, name, root)
        torn = {path for path, body in whole_files(root).items() if whole.get(path) != body}
        assert not torn, (name, step, torn)
        worked(name, root)
        assert whole_files(root) == whole, (name, step)
        step += 1
    shutil.rmtree(folder / "before")
    print(name, step - 1)
"""
WRITES_NOTHING = {"Structure_Checked", "Metadata_checked"}


def test_a_killed_work_leaves_whole_files_and_its_next_run_completes_it(tmp_path: Path) -> None:
    argv = [sys.executable, "-c", KILLED_AT_EACH_STEP, str(tmp_path)]
    done = subprocess.run(argv, cwd=ROOT, env=environment(), capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stdout + done.stderr
    kills = {name: int(count) for name, count in (line.split() for line in done.stdout.splitlines())}
    assert kills.keys() == WORK.keys()
    assert {name for name, count in kills.items() if count < 3} == WRITES_NOTHING
