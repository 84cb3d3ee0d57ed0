"""A judge by a published algorithm: could an object that does one thing at a time have answered like this history?

`search` decides it, `objects` says what each object does, `reading` takes the operations out of a history of the
laboratory.
"""
