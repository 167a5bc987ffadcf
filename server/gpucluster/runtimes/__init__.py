"""How a task runs on its node: the process runtime, its supervisor, fork servers and limits."""
