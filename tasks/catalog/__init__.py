"""The catalog: SQL tables of the objects harvested from member nodes, and of the objects that could not be fetched."""
