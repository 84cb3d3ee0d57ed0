from tests.tasks.conftest import server, settings, slapd

__all__ = ["server", "settings", "slapd"]
