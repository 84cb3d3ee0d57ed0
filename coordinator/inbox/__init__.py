"""The inbox: consumes requests from a queue of the broker, and calls a handler of the app with each.

    coordinator.inbox("orders", Order, take_order)  # Order: a pydantic model that forbids unknown fields

Any program may publish JSON to the queue. The handler may be called twice with one request, which then has the same id;
it should submit a job under that id, so that the second submit does nothing.
"""
