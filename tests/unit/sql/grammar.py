"""Random SQL for the fuzzer: mostly valid, sometimes nearly, sometimes nothing of the kind.

Guarantees: the same seed gives the same texts.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

STREAMS = {
    "videos": ("vid", "title", "geo", "ts", "likes", "score", "published", "price", "ok"),
    "views": ("vid", "uid", "name", "ts", "duration"),
    "comments": ("uid", "text", "ts"),
}
FUNCTIONS = (
    *(
        "lower",
        "upper",
        "trim",
        "concat",
        "length",
        "substring",
        "replace",
        "levenshtein",
        "abs",
        "round",
        "floor",
    ),
    *(
        "coalesce",
        "nullif",
        "greatest",
        "year",
        "add_months",
        "unix_micros",
        "power",
        "startswith",
        "if",
        "mod",
    ),
    *("count", "sum", "lag", "explode", "nosuch", "current_timestamp", "array", "struct"),
)
CLAUSES = (
    *("GROUP BY v.vid", "HAVING v.vid > 1", "ORDER BY v.vid", "LIMIT 10", "OFFSET 3", "QUALIFY 1 = 1"),
    *(
        "UNION SELECT 1",
        "UNION ALL SELECT v.vid FROM videos v",
        "WINDOW w AS (PARTITION BY v.vid)",
        "FOR UPDATE",
    ),
    *(
        "LATERAL VIEW explode(v.x) t AS y",
        "TABLESAMPLE (5 PERCENT)",
        "PIVOT (sum(x) FOR y IN (1, 2))",
        "|> LIMIT 3",
    ),
    *("; SELECT 1", ";", "CLUSTER BY v.vid", "SORT BY 1", "FETCH FIRST 1 ROW ONLY", "EXCEPT SELECT 1"),
)
PIECES = (
    *(
        "(",
        ")",
        "[",
        "]",
        "{",
        "}",
        "'",
        '"',
        "`",
        "--",
        "/*",
        "*/",
        "/*+",
        ";",
        ",",
        ".",
        "..",
        "::",
        "->",
        "=>",
        "|>",
    ),
    *(
        "?",
        ":x",
        "@x",
        "${x}",
        "$1",
        "%",
        "!",
        "~",
        "&",
        "|",
        "^",
        "<=>",
        "==",
        "<>",
        "||",
        "\\",
        "\0",
        "\t",
        "\n",
        "\r",
    ),
    *(
        "SELECT",
        "FROM",
        "WHERE",
        "JOIN",
        "LEFT",
        "CROSS",
        "ON",
        "USING",
        "AS",
        "AND",
        "OR",
        "NOT",
        "NULL",
        "IS",
        "IN",
    ),
    *(
        "BETWEEN",
        "LIKE",
        "CASE",
        "WHEN",
        "THEN",
        "ELSE",
        "END",
        "CAST",
        "INTERVAL",
        "DATE",
        "TIMESTAMP",
        "OVER",
        "WITH",
    ),
    *(
        "RANGE",
        "ROWS",
        "UNBOUNDED",
        "INSERT",
        "VALUES",
        "EXISTS",
        "DISTINCT",
        "LATERAL",
        "NATURAL",
        "SEMI",
        "PIVOT",
    ),
    *(
        "0",
        "1",
        "-1",
        "1.5",
        "1e5",
        "1e999",
        ".5",
        "9" * 25,
        "1L",
        "1BD",
        "x'1F'",
        "r'a'",
        "''",
        "é",
        "名",
        "😀",
        "\u202e",
    ),
)

# Columns, constants and forms by type, so that a good part of the texts is accepted.
OF_TYPE = {
    "number": ("vid", "uid", "likes", "score", "price", "duration"),
    "string": ("title", "geo", "name", "text"),
    "time": ("ts", "published"),
}
CONSTANTS = {
    "number": (
        "1",
        "-1",
        "1.5",
        "1e-7",
        "2147483648",
        "9223372036854775807",
        "-9223372036854775808",
        "1L",
        "NULL",
    ),
    "string": (
        "'US'",
        "'it\\'s'",
        "'a%'",
        "'[RANGE 1 DAY]'",
        "'-- x'",
        "''",
        '"double"',
        "'\\\\n'",
        "NULL",
        "'名😀'",
    ),
    "time": (
        "DATE '2024-02-29'",
        "TIMESTAMP '2024-01-01 00:00:00.5'",
        "TIMESTAMP '2024-01-01 00:00:00+02:00'",
    ),
}
TYPED = {
    "number": (
        *(
            "{} + {}",
            "{} - {}",
            "{} * ({})",
            "{} / {}",
            "{} % {}",
            "-{}",
            "abs({})",
            "round({}, 1)",
            "floor({})",
        ),
        *(
            "CAST({} AS DECIMAL(12,3))",
            "CASE WHEN {} < {} THEN 1 ELSE {} END",
            "coalesce({}, {})",
            "if({} > 1, {}, 0)",
        ),
    ),
    "string": (
        *(
            "lower({})",
            "{} || {}",
            "concat({}, {}, 'x')",
            "substring({}, 1, 2)",
            "trim({})",
            "replace({}, {}, 'a')",
        ),
        *("CASE {} WHEN {} THEN 'a' END", "nvl({}, {})", "CAST(levenshtein({}, {}) AS STRING)"),
    ),
    "time": (
        *("{} + INTERVAL '5' SECOND", "{} - INTERVAL 1 HOUR", "greatest({}, {})", "({})"),
        *(
            "{} - INTERVAL '1 day 2 hours'",
            "CAST({} AS DATE)",
            "add_months({}, 1)",
            "{} + 2 * INTERVAL '1' DAY",
        ),
    ),
}


class Grammar:
    """Writes texts with the help of one source of randomness."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.aliases: list[tuple[str, str]] = []

    def chance(self, percent: int) -> bool:
        """Whether this time is one of so many in a hundred."""
        return self.random.randrange(100) < percent

    def text(self) -> str:
        """A query, perhaps damaged."""
        return self.damaged(self.query())

    def fragment(self, *aliases: tuple[str, str]) -> str:
        """A condition on some streams, perhaps damaged."""
        self.aliases = list(aliases)
        return self.damaged(self.condition(3))

    def damaged(self, text: str) -> str:
        """The text, or something like it."""
        for _ in range(self.random.choice((0, 0, 0, 1, 1, 2, 5))):
            text = self.random.choice((_change_token, _change_character))(self.random, text)
        return text

    def query(self) -> str:
        """A query as the grammar has it, with something unsupported now and then."""
        count = self.random.randint(1, 4)
        self.aliases = [(f"{'vwcx'[i]}", self.random.choice(list(STREAMS))) for i in range(count)]
        origin = self.relation(*self.aliases[0])
        for alias in self.aliases[1:]:
            origin += self.join(*alias)
        items = ", ".join(self.item() for _ in range(self.random.randint(1, 3)))
        where = f" WHERE {self.conditions()}" if count > 1 or self.chance(50) else ""
        tail = " " + self.random.choice(CLAUSES) if self.chance(6) else ""
        return f"SELECT {'DISTINCT ' if self.chance(2) else ''}{items} FROM {origin}{where}{tail}"

    def relation(self, alias: str, stream: str) -> str:
        """A stream with its window."""
        window = self.window() if self.chance(40) else ""
        if self.chance(3):
            return f"(SELECT * FROM {stream}) {alias}"
        return f"{stream}{window} {'AS ' if self.chance(50) else ''}{alias}"

    def window(self) -> str:
        """Brackets that may be a window."""
        if self.chance(10):
            return self.random.choice(
                (
                    " [NOW]",
                    "[1]",
                    " [ROWS 1.5]",
                    " [ROWS 5 PER]",
                    " [ROWS 5 PER a.b, 7]",
                    " [RANGE 5 DAYS PER ts]",
                    " [ROWS 0]",
                    " [RANGE 5 BANANAS]",
                    " [RANGE 5]",
                    " []",
                )
            )
        count = self.random.choice(("10", "1", "1000"))
        unit = self.random.choice(("SECONDS", "minute", "HOURS", "days", "weeks", "MILLISECONDS"))
        return self.random.choice(
            (f" [RANGE {count} {unit}]", f" [ROWS {count}]", f" [ROWS {count} PER ts]", " [UNBOUNDED]")
        )

    def join(self, alias: str, stream: str) -> str:
        """One more stream."""
        kinds = (
            "JOIN",
            "INNER JOIN",
            "LEFT JOIN",
            "RIGHT OUTER JOIN",
            "FULL JOIN",
            "CROSS JOIN",
            "LEFT ANTI JOIN",
            "SEMI JOIN",
        )
        if self.chance(50):
            return f", {self.relation(alias, stream)}"
        kind = self.random.choice(kinds)
        if kind == "CROSS JOIN" or self.chance(5):
            return f" {kind} {self.relation(alias, stream)}"
        if self.chance(20):
            return f" {kind} {self.relation(alias, stream)} USING ({self.random.choice(STREAMS[stream])})"
        if self.chance(5):
            return f" {kind} ({self.relation(alias, stream)} JOIN views n ON n.ts = {alias}.ts) ON {self.condition(2)}"
        return f" {kind} {self.relation(alias, stream)} ON {self.condition(2)}"

    def item(self) -> str:
        """Something to select."""
        alias = self.random.choice(self.aliases)[0]
        if self.chance(10):
            return self.random.choice(("*", f"{alias}.*", "* EXCEPT (vid)", "count(*)", "count(*) OVER ()"))
        name = (
            f" AS {self.random.choice(('n', 'm', '`odd name`', 'date', 'v_vid'))}" if self.chance(30) else ""
        )
        return self.expression(3) + name

    def conditions(self) -> str:
        """What stands after WHERE: most pairs of streams are joined, so that some queries are accepted."""
        parts = [self.condition(3)] if self.chance(60) else []
        for (one, _), (other, _) in zip(self.aliases, self.aliases[1:], strict=False):
            parts += [f"{one}.ts = {other}.ts"] if self.chance(85) else []
        self.random.shuffle(parts)
        return " AND ".join(parts) or "v.ts IS NOT NULL"

    def column(self) -> str:
        """A column that usually exists."""
        alias, stream = self.random.choice(self.aliases)
        if self.chance(3):
            return self.random.choice(
                (f"{alias}.nosuch", "z.vid", "vid", "a.b.c", f"{alias}.vid[0]", "TITLE")
            )
        return f"{alias}.{self.random.choice(STREAMS[stream])}"

    def constant(self) -> str:
        """A constant."""
        return self.random.choice(
            (
                *(
                    "1",
                    "0",
                    "-1",
                    "1.5",
                    "1e-7",
                    "2147483648",
                    "9223372036854775807",
                    "'US'",
                    "'it''s'",
                    "'a%'",
                    "NULL",
                ),
                *(
                    "TRUE",
                    "FALSE",
                    "DATE '2024-02-29'",
                    "TIMESTAMP '2024-01-01 00:00:00.5'",
                    "INTERVAL '5' SECOND",
                ),
                *(
                    "INTERVAL 1 HOUR",
                    "INTERVAL '1' MONTH",
                    "'2024-01-01'",
                    "99999999999999999999",
                    "1L",
                    "'[x]'",
                ),
            )
        )

    def of_type(self, kind: str, depth: int) -> str:
        """An expression that has the type, if all goes well."""
        if self.chance(4):
            return self.expression(depth)
        if depth <= 0 or self.chance(40):
            return self.leaf(kind)
        return self.random.choice(TYPED[kind]).format(*(self.of_type(kind, depth - 1) for _ in range(3)))

    def leaf(self, kind: str) -> str:
        """A column or a constant of the type."""
        columns = [
            f"{alias}.{name}"
            for alias, stream in self.aliases
            for name in STREAMS[stream]
            if name in OF_TYPE[kind]
        ]
        return (
            self.random.choice(columns)
            if columns and self.chance(75)
            else self.random.choice(CONSTANTS[kind])
        )

    def expression(self, depth: int) -> str:
        """An expression of whatever type."""
        if self.chance(75):
            return self.of_type(self.random.choice(list(TYPED)), depth)
        if depth <= 0 or self.chance(40):
            return self.column() if self.chance(65) else self.constant()
        one, other = self.expression(depth - 1), self.expression(depth - 1)
        forms: tuple[Callable[[], str], ...] = (
            lambda: f"{one} {self.random.choice('+-*/%')} {other}",
            lambda: f"({one})",
            lambda: f"{self.random.choice(FUNCTIONS)}({one})",
            lambda: f"{self.random.choice(FUNCTIONS)}({one}, {other})",
            lambda: (
                f"CAST({one} AS {self.random.choice(('STRING', 'BIGINT', 'DECIMAL(10,2)', 'DATE', 'ARRAY<INT>'))})"
            ),
            lambda: f"CASE WHEN {self.condition(depth - 1)} THEN {one} ELSE {other} END",
            lambda: f"CASE {one} WHEN {other} THEN 1 END",
            lambda: f"-{one}",
            lambda: f"{one} || {other}",
        )
        return self.random.choice(forms)()

    def condition(self, depth: int) -> str:
        """Something that is true or false, as a rule."""
        if depth > 0 and self.chance(25):
            operator = self.random.choice((" AND ", " OR "))
            return f"({self.condition(depth - 1)}{operator}{self.condition(depth - 1)})"
        if self.chance(90):
            kind = self.random.choice(list(TYPED))
            one, other = self.of_type(kind, depth - 1), self.of_type(kind, depth - 1)
        else:
            one, other = self.expression(depth - 1), self.expression(depth - 1)
        good = (
            *(f"{one} {operator} {other}" for operator in ("=", "==", "<", ">=", "<>", "!=")),
            *(f"{one} BETWEEN {other} AND {one}", f"NOT {one} = {other}", f"{one} NOT IN ({other}, {one})"),
            *(
                f"abs({one} - ({other})) < INTERVAL '5' SECOND",
                f"{one} - {other} <= INTERVAL '-1 day 2 hours'",
            ),
            *(f"{one} = 1 OR {one} = 2", f"({one} = {other}) = TRUE", f"{one} = {other} AND 1 < 2"),
            *(f"{one} IS NOT NULL", f"{one} IS NULL", f"{self.leaf('string')} NOT LIKE '%x_'"),
        )
        bad = (
            *(
                f"{one} IN (SELECT 1)",
                f"EXISTS (SELECT {one})",
                f"{one} RLIKE 'x'",
                f"{one} <=> {other}",
                one,
            ),
            *(f"{one} LIKE ANY ('a', 'b')", f"({one}, 1) = ({other}, 2)", f"{one} BETWEEN {other} {one}"),
        )
        return self.random.choice(bad if self.chance(4) else good)


def _change_token(random: Random, text: str) -> str:
    """Leave out, double, swap or insert a word."""
    words = text.split(" ")
    at = random.randrange(len(words))
    change = random.randrange(5)
    if change == 0:
        del words[at]
    elif change == 1:
        words.insert(at, words[at])
    elif change == 2:
        other = random.randrange(len(words))
        words[at], words[other] = words[other], words[at]
    else:
        words.insert(at, random.choice(PIECES))
    return " ".join(words)


def _change_character(random: Random, text: str) -> str:
    """Leave out, double or insert a character, or repeat a stretch many times over."""
    at = random.randrange(len(text) + 1)
    change = random.randrange(10)
    if change < 3:
        return text[:at] + text[at + 1 :]
    if change < 6:
        return text[:at] + random.choice(PIECES) + text[at:]
    if change < 8:
        return text[:at] + chr(random.randrange(0x110000)) + text[at:]
    if change == 8:
        return text[:at]
    stretch = text[at : at + random.randint(1, 8)]
    return text[:at] + stretch * random.choice((2, 10, 60)) + text[at:]
