"""Events from outside for which jobs wait: a program or an operator sets each, once, with a value."""
