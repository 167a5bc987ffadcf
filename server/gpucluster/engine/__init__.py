"""The loop: events in, snapshot, policy, decisions out; the journal; recovery. Protocols of what it reaches: protocols.py."""
