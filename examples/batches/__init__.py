"""A batch pipeline with real work: digitised newspapers are archived, checked and flagged for a curator."""
