"""The queues of nodes that are gone leave nothing on a Redis broker."""

from celery import Celery

from coordinator import Coordinator
from coordinator.broker.doorbells import GONE, Doorbells, queue_of
from coordinator.warden.errands.gone_nodes import remove_queues_of_gone_nodes
from tests.harness.hand_node import Puppet
from tests.harness.redis import RedisServer


def test_the_queue_of_a_node_goes_once_kombu_puts_nothing_back_into_it(
    redis_server: RedisServer, prefix: str, node: Puppet
) -> None:
    app = Celery("shop", broker=redis_server.url(1), set_as_current=False)
    app.conf.broker_transport_options = {"global_keyprefix": f"{prefix}.", "visibility_timeout": 60}
    Coordinator(app, url=redis_server.url(0), prefix=prefix)
    store, bells = app.coordinator.store, Doorbells(app)
    names, homes = ("dead", "late", "silent", "one"), store.key("homes", "shop")
    with redis_server.client(1) as broker:
        for name in names:
            bells.ring(name, "void")
            remove_queues_of_gone_nodes(app, name)
        long = (GONE + 60) * 1000
        for name, gone in {"dead": long, "late": long - 10_000, "one": long}.items():
            store._client.zincrby(homes, -gone, name)
        remove_queues_of_gone_nodes(app, "other")
        left = [name for name in names if broker.exists(f"{prefix}.{queue_of(name).name}")]
        assert left == ["late", "silent", "one"], "a node that lives keeps its queue"
        assert broker.keys(f"{prefix}.*dead*") == []
    store._client.delete(homes)
    app.close()
