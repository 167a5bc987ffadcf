"""Alembic migrations; `versions/NNNN_what.py`, whose revision is NNNN. Run by schema.py, never by hand."""
