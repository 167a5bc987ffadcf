"""Who acts. Always derived from the credential (socket peer, token, Hub), never from a request body."""

from __future__ import annotations

from collections.abc import Iterable

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

    def is_named(self, entries: Iterable[str]) -> bool:
        """Whether an access list (``*``, user names, principal ids, groups as ``@group``) names this principal."""
        names = {"*", self.name, self.id, *(f"@{group}" for group in self.groups)}
        return not names.isdisjoint(entries)


SYSTEM = Principal(issuer="system", subject="scheduler", name="scheduler", is_admin=True)
