"""The checklist of a release: `make release`. Each step prints one line; the first that fails ends it.

It builds the wheel and the source archive in dist/, and tries the wheel in an environment of its own, outside the
checkout. It publishes nothing and makes no tag: the last line says how. `--rehearse` leaves out what only a release
commit has: a version without `.dev`, a dated changelog, a clean tree.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
import venv
from collections.abc import Callable
from pathlib import Path

import click

ROOT = Path(__file__).parents[1]
VENDORED = ROOT / "coordinator" / "dashboard" / "static" / "vendor"
VERSION = str(tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"])
EXTRAS = "embedded,dashboard"
FIXTURE = re.compile(r"```python title=\"(\w+\.py)\"\n(.*?)```", re.DOTALL)

# README's example beside a real worker, which its private Redis and the environment of the wheel make possible.
LIVE = """
import os, subprocess, sys
from coordinator.local.redis import EmbeddedRedis
from pathlib import Path

with EmbeddedRedis(Path("redis")) as server:
    text = Path("readme.py").read_text().replace("redis://localhost:6379/", server.url.removesuffix("0"))
    Path("shop.py").write_text(text)
    worker = subprocess.Popen([sys.executable, "-m", "celery", "-A", "shop", "worker"])
    try:
        import shop
        job = shop.coordinator.submit("order/42", shop.ship.s(42))
        shop.coordinator.wait(job, timeout=60)
        assert shop.coordinator.job(job).state == "succeeded", shop.coordinator.why(job)
    finally:
        worker.terminate()
        worker.wait()
"""


class Failed(Exception):
    """A step failed; the text says why."""


def run(*argv: object, cwd: Path = ROOT, **environ: str) -> str:
    """Run a program; returns what it printed. Raises Failed with the end of that."""
    env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | environ
    done = subprocess.run([str(part) for part in argv], cwd=cwd, env=env, capture_output=True, text=True)
    if done.returncode:
        raise Failed(f"{argv[0]}: status {done.returncode}\n{(done.stdout + done.stderr)[-3000:]}")
    return done.stdout


def check_tree() -> str:
    if changed := run("git", "status", "--porcelain"):
        raise Failed(f"these files are not committed:\n{changed}")
    return f"commit {run('git', 'rev-parse', '--short', 'HEAD').strip()}"


def check_version() -> str:
    if not re.fullmatch(r"\d+\.\d+\.\d+", VERSION):
        raise Failed(f"pyproject.toml has {VERSION}: a release has three numbers")
    dated = re.search(rf"^## \[{re.escape(VERSION)}\] - \d{{4}}-\d\d-\d\d$", (ROOT / "CHANGELOG.md").read_text(), re.M)
    if not dated:
        raise Failed(f"CHANGELOG.md has no line '## [{VERSION}] - YYYY-MM-DD'")
    return VERSION


def with_addresses(text: str, repository: str) -> str:
    """README for a package's page elsewhere: each relative link with its address at this version."""
    return re.sub(r"(\[[^\]]*\]\()(?!\w+://|#)([^)\s]+)", rf"\g<1>{repository.rstrip('/')}/blob/v{VERSION}/\g<2>", text)


def check_addresses() -> str:
    """The addresses on the package's page; README's relative links need the repository's there."""
    urls = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"].get("urls", {})
    if lacking := [name for name in ("Repository", "Documentation", "Changelog", "Security") if name not in urls]:
        raise Failed(f"pyproject.toml has no address for {', '.join(lacking)}: name them in [project.urls]")
    return ", ".join(urls)


def build() -> str:
    """The archives. README in them has whole addresses where [project.urls] names the repository."""
    shutil.rmtree(ROOT / "dist", ignore_errors=True)
    readme, urls = ROOT / "README.md", tomllib.loads((ROOT / "pyproject.toml").read_text())["project"].get("urls", {})
    text = readme.read_text()
    try:
        if repository := urls.get("Repository"):
            readme.write_text(with_addresses(text, repository))
        run(sys.executable, "-m", "build", "--no-isolation", "--outdir", ROOT / "dist")
    finally:
        readme.write_text(text)
    run(sys.executable, "-m", "twine", "check", "--strict", *sorted((ROOT / "dist").iterdir()))
    return ", ".join(path.name for path in sorted((ROOT / "dist").iterdir()))


def try_wheel() -> str:
    """README's example with a worker, and the pytest fixture of docs/howto/test-your-code.md."""
    (wheel,) = (ROOT / "dist").glob("*.whl")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        venv.create(folder / "venv", with_pip=True)
        python = folder / "venv" / "bin" / "python"
        run(
            python,
            "-m",
            "pip",
            "install",
            "-q",
            "--disable-pip-version-check",
            f"{wheel}[{EXTRAS}]",
            "pytest",
            cwd=folder,
        )
        if name not in run(python, "-c", "import coordinator; print(coordinator.__file__)", cwd=folder):
            raise Failed("the environment imports the checkout")
        (example,) = re.findall(
            r"```python\n(from celery import Celery.*?)```", (ROOT / "README.md").read_text(), re.DOTALL
        )
        tasks = "\n".join(f"@app.task\ndef {task}(*args): ...\n" for task in ("count", "debit", "credit", "undo"))
        live, tests = folder / "live", folder / "tests"
        live.mkdir()
        (live / "readme.py").write_text(f"{example}\n{tasks}")
        (live / "try.py").write_text(LIVE)
        run(python, "try.py", cwd=live)
        tests.mkdir()
        for file, text in FIXTURE.findall((ROOT / "docs" / "howto" / "test-your-code.md").read_text())[:3]:
            (tests / file).write_text(text)
        passed = run(python, "-m", "pytest", "-q", cwd=tests).strip().splitlines()[-1]
        run(folder / "venv" / "bin" / "coordinator", "--help", cwd=folder)
    return f"README's example ran on a worker; the fixture: {passed}"


def build_docs() -> str:
    run(sys.executable, "-m", "mkdocs", "build", "--strict", NO_MKDOCS_2_WARNING="1")
    return run(sys.executable, "generate/check_site.py", "build/site").strip() or "build/site"


def check_licences() -> str:
    """Each vendored file has its licence beside it; a test holds the hashes."""
    run(sys.executable, "-m", "pytest", "-q", "tests/coordinator/ops/dashboard/test_pages.py", "-k", "vendored")
    return ", ".join(path.name for path in sorted(VENDORED.iterdir()))


def audit() -> str:
    """Known vulnerabilities of the pinned versions. pip-audit ends well also where it could ask nobody."""
    argv = [sys.executable, "-m", "pip_audit", "-r", str(ROOT / "requirements.txt"), "--no-deps", "-f", "json"]
    done = subprocess.run([*argv, "--disable-pip"], cwd=ROOT, capture_output=True, text=True)
    try:
        packages = json.loads(done.stdout)["dependencies"]
    except (ValueError, KeyError):
        return f"not asked: {(done.stderr.strip().splitlines() or ['pip-audit did not answer'])[-1][:200]}"
    if not any("skip_reason" not in package for package in packages):
        return "not asked: the service of advisories does not answer"
    if bad := [f"{package['name']} {package['version']}" for package in packages if package.get("vulns")]:
        raise Failed(f"known vulnerabilities in {', '.join(bad)}")
    return f"{len(packages)} packages, no known vulnerability"


ALWAYS: tuple[Callable[[], str], ...] = (build, try_wheel, build_docs, check_licences, audit)


@click.command()
@click.option("--rehearse", is_flag=True, help="Leave out what only a release commit has.")
def main(rehearse: bool) -> None:
    """Check, build and try a release."""
    for step in (*(() if rehearse else (check_tree, check_version, check_addresses)), *ALWAYS):
        name = step.__name__.replace("_", " ")
        try:
            click.echo(f"ok      {name}: {step()}")
        except Failed as error:
            click.echo(f"FAILED  {name}: {error}")
            raise SystemExit(1) from None
    click.echo(f"Now, by hand: git tag -a v{VERSION} -m 'celery-coordinator {VERSION}', and upload dist/ with twine.")


if __name__ == "__main__":
    main()
