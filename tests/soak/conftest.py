from tests.consistency.conftest import apart
from tests.fleet.conftest import fleet, rabbitmq

__all__ = ["apart", "fleet", "rabbitmq"]
