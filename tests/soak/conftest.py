from tests.consistency.conftest import apart
from tests.fleet.conftest import fleet

__all__ = ["apart", "fleet"]
