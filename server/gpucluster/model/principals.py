"""Who acts. Always derived from the credential (socket peer, token, Hub), never from a request body."""

from __future__ import annotations

import msgspec


class Principal(msgspec.Struct, frozen=True, kw_only=True):
    """`issuer` says who vouches ("unix" for socket peers), `subject` is unique within it (the uid), `name` is for people."""

    issuer: str
    subject: str
    name: str
    groups: tuple[str, ...] = ()
    is_admin: bool = False

    @property
    def id(self) -> str:
        """The stable identity, e.g. ``unix:1000``."""
        return f"{self.issuer}:{self.subject}"


SYSTEM = Principal(issuer="system", subject="scheduler", name="scheduler", is_admin=True)
