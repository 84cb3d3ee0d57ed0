"""Faults put into the scripts in memory, one at a time."""

from tests.model.mutants import endings, lanes, takings, wardens

MUTATIONS = [*lanes.MUTATIONS, *takings.MUTATIONS, *endings.MUTATIONS, *wardens.MUTATIONS]
