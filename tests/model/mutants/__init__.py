"""Faults put into the library in memory, one at a time."""

from tests.model.mutants import endings, lanes, sorters, takings, wardens

MUTATIONS = [*lanes.MUTATIONS, *takings.MUTATIONS, *endings.MUTATIONS, *sorters.MUTATIONS, *wardens.MUTATIONS]
