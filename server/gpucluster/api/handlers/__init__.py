"""HTTP handlers: one module per resource. Every one of them authenticates before it reads a body (base.py)."""
