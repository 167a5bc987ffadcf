"""Where tasks run: the local backend."""
