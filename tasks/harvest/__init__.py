"""The synchronization of a member: it lists the objects, fetches their metadata, and stores them."""
