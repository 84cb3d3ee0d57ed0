"""The harvested objects and the failures, in SQL."""
