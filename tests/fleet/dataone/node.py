"""DataONE's member node, GMN, as a process of its own in the environment of `make dataone`.

    python node.py serve                     until it is killed
    python node.py synchronize CN CERT PID   as its own command for it would: that command breaks off in 3.5.2

GMN names `d1_gmn.settings`, a module that an operator writes. It is made here, of GMN_… in the environment.
"""

import asyncio
import importlib
import os
import sys
from types import ModuleType

import d1_common.const
import d1_common.util
import d1_common.utils.filesystem  # noqa: F401  GMN's template takes all three as imported
from d1_common.types.exceptions import NotFound

WRITER = "GMN_WRITER"


def configure() -> None:
    template = importlib.import_module("d1_gmn.settings_template")
    settings, folder = ModuleType("d1_gmn.settings"), os.environ["GMN_FOLDER"]
    vars(settings).update({name: value for name, value in vars(template).items() if name.isupper()})
    vars(settings).update(
        NODE_IDENTIFIER=os.environ["GMN_NODE"],
        NODE_NAME="GMN",
        NODE_DESCRIPTION="A node of the tests.",
        NODE_BASEURL=f"http://127.0.0.1:{os.environ['GMN_PORT']}",
        NODE_SUBJECT=os.environ["GMN_SUBJECT"],
        DEBUG_GMN=True,  # a header may hold the client's certificate, so that the writer needs no TLS
        ALLOWED_HOSTS=["127.0.0.1"],
        SECRET_KEY="of a test",
        OBJECT_STORE_PATH=f"{folder}/store",  # which GMN makes; it refuses an empty folder
        SCIMETA_VALIDATION_ENABLED=False,
        CLIENT_CERT_PATH=None,
        CLIENT_CERT_PRIVATE_KEY_PATH=None,
    )
    settings.LOGGING["handlers"]["rotating_file"]["filename"] = f"{folder}/log"
    of_database = {name: os.environ[f"GMN_DATABASE_{name}"] for name in ("NAME", "USER", "PORT")}
    settings.DATABASES["default"].update(**of_database, HOST="127.0.0.1")
    sys.modules["d1_gmn.settings"] = settings
    os.environ.update(DJANGO_SETTINGS_MODULE="d1_gmn.settings", DJANGO_ALLOW_ASYNC_UNSAFE="true")
    importlib.import_module("django").setup()


def serve() -> None:
    from django.core.management import call_command
    from waitress import serve  # a server that ends a request's body: GMN reads to its end

    call_command("migrate", run_syncdb=True, verbosity=0)
    models = importlib.import_module("d1_gmn.app.models")  # the command for it is broken
    models.WhitelistForCreateUpdateDelete.objects.get_or_create(subject=models.subject(os.environ[WRITER]))
    serve(importlib.import_module("d1_gmn.wsgi").application, host="127.0.0.1", port=int(os.environ["GMN_PORT"]))


async def synchronize(cn: str, certificate: str, pid: str) -> None:
    """The two requests of GMN's command, by the methods that it calls. Prints whether the object was there before."""
    client = importlib.import_module("d1_client.aio.async_client").AsyncDataONEClient
    command = importlib.import_module("d1_gmn.app.management.commands.audit-sync-mn-to-cn").Command()
    command.audit_tracker = Tracker()
    command.async_d1_client = client(
        cn, cert_pem_path=certificate, cert_key_path=certificate, disable_server_cert_validation=True
    )
    try:
        try:
            await command.async_d1_client.describe(pid)
            before = "there"
        except NotFound:
            before = "not there"
        await command.send_synchronization_request(pid)
    finally:
        await command.async_d1_client.close()
    print(before)


class Tracker:
    def event(self, *said: object, **more: object) -> None:
        """What GMN counts."""


if __name__ == "__main__":
    configure()
    if sys.argv[1] == "serve":
        serve()
    else:
        asyncio.run(synchronize(*sys.argv[2:]))
