"""Tools of operators: commands, dashboard, metrics, diagnosis, search, and the verbs that change an installation."""
