"""Who runs next, and where: pure functions and small classes. Books in, decisions out; no clock, no I/O, no randomness."""
