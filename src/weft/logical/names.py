"""Names as SQL writes them.

Guarantees: what `identifier` prints is read back as that name.
"""

from __future__ import annotations

import re

__all__ = ["identifier"]


def identifier(name: str) -> str:
    """A name as SQL; quoted where it would read as something else.

    >>> identifier("v"), identifier("select"), identifier("a`b")
    ('v', '`select`', '`a``b`')
    """
    plain = name.isascii() and name.isidentifier() and name.lower() not in _RESERVED
    return name if plain else "`" + name.replace("`", "``") + "`"


_RESERVED = frozenset(
    re.findall(
        r"\w+",
        """
        all alter and anti any as asof at between both by case cast cluster collate connect_by_root create
        cross current current_date current_timestamp current_user date day describe distinct distribute
        div drop else end escape except exists false fetch for from full glob grant group having hour if
        ilike in inner insert intersect interval into is join lateral leading left like limit minus minute
        month natural not notnull null offset on or order outer over partitioned_by pivot qualify range
        regexp returning revoke right rlike rollback rows second select semi serdeproperties session_user
        set sort table tablesample then timestamp to trailing true unbounded uncache union unique unpivot
        using values when where window with xor year
        """,
    )
)
