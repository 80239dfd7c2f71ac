"""The pages of reference that are made from the code: `python -m docs.drawn.reference` writes docs/reference/.

Guarantees: functions of SQL come from their guide, whose examples are tests; Python's names from `weft.__all__` and
their docstrings; errors from every place in the code that raises one. What is not in the code cannot be on these pages.
"""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import weft
from weft import errors
from weft.errors import WeftError
from weft.logical.expr.functions import SECTIONS

DOCS = Path(__file__).parents[1]
SOURCE = Path(inspect.getfile(weft)).parent


def functions_page() -> str:
    """All functions and operators of SQL, by section."""
    parts = [
        "# Functions of SQL",
        "Every function and operator there is. They give what Spark gives, and NULL where Spark would stop the query"
        " ([what differs](../sql.md#where-values-differ-from-sparks)). Each example is run by a test."
        " More of your own: [`session.function`](../cookbook/own-function.md).",
    ]
    for section, entries in SECTIONS.items():
        rows = ["| written | what it gives | example |", "|---|---|---|"]
        for entry in entries:
            examples = "<br>".join(f"`{_cell(sql)}` → `{_cell(value)}`" for sql, value in entry.examples)
            also = f" Also {', '.join(f'`{name}`' for name in entry.synonyms)}." if entry.synonyms else ""
            rows.append(f"| `{_cell(entry.form)}` | {entry.text}{also} | {examples} |")
        parts += [f"## {section}", "\n".join(rows)]
    return "\n\n".join(parts) + "\n"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


# Python

GROUPS = {
    "Sessions and queries": ("Session", "PlannedQuery", "select", "from_", "Query"),
    "Sources": (
        "files",
        "kafka",
        "delta",
        "rate",
        "sequence",
        "uniform",
        "choice",
        "zipf",
        "timestamps",
        "drifting",
        "Dial",
    ),
    "Sinks": (
        "to_parquet",
        "to_memory",
        "to_recent",
        "to_count",
        "to_console",
        "to_kafka",
        "to_delta",
        "to_iceberg",
        "to_postgres",
        "foreach_batch",
    ),
}


def python_page() -> str:
    """Every public name with its signature and its docstring."""
    named = {name for names in GROUPS.values() for name in names}
    exceptions = [name for name in weft.__all__ if _is_error(name)]
    others = [name for name in weft.__all__ if name not in named and name not in exceptions]
    groups = {**GROUPS, "Options and values": tuple(others)}
    parts = ["# Python", "What `import weft` offers. [Errors](errors.md) have a page of their own."]
    for group, names in groups.items():
        parts.append(f"## {group}")
        for name in names:
            if name in weft.__all__:
                parts += _entry(name, getattr(weft, name))
    return "\n\n".join(parts) + "\n"


def _is_error(name: str) -> bool:
    value = getattr(weft, name)
    return inspect.isclass(value) and issubclass(value, BaseException)


def _entry(name: str, value: object) -> Iterator[str]:
    yield f"### weft.{name}"
    yield f"```text\n{_signature(name, value)}\n```"
    yield _prose(inspect.getdoc(value) or "")
    if inspect.isclass(value):
        for member, function in inspect.getmembers(value):
            is_public = not member.startswith("_") and _is_own(value, member)
            if is_public and (inspect.isfunction(function) or isinstance(function, property)):
                yield from _member(name, member, function)


def _is_own(kind: type, member: str) -> bool:
    return any(member in vars(base) for base in kind.__mro__ if base.__module__.startswith("weft"))


def _member(owner: str, name: str, function: object) -> Iterator[str]:
    called = name if isinstance(function, property) else _signature(name, function)
    yield f"#### {owner}.{name}\n\n```text\n{called}\n```"
    yield _prose(inspect.getdoc(function) or "")


def _signature(name: str, value: object) -> str:
    """How something is called, a parameter on each line where they do not fit on one."""
    try:
        signature = inspect.signature(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return name
    parameters = [_parameter(p) for p in signature.parameters.values() if p.name not in ("self", "cls")]
    if any(p.kind is p.KEYWORD_ONLY for p in signature.parameters.values()):
        first = next(
            n
            for n, p in enumerate(q for q in signature.parameters.values() if q.name not in ("self", "cls"))
            if p.kind is p.KEYWORD_ONLY
        )
        if not any(text.startswith("*") for text in parameters):
            parameters.insert(first, "*")
    line = f"{name}({', '.join(parameters)})"
    return line if len(line) <= 100 else f"{name}(\n    " + ",\n    ".join(parameters) + ",\n)"


def _parameter(parameter: inspect.Parameter) -> str:
    stars = {"VAR_POSITIONAL": "*", "VAR_KEYWORD": "**"}.get(parameter.kind.name, "")
    kind = "" if parameter.annotation is parameter.empty else f": {_type(parameter.annotation)}"
    default = "" if parameter.default is parameter.empty else f" = {_default(parameter.default)}"
    return f"{stars}{parameter.name}{kind}{default}"


def _type(annotation: object) -> str:
    return annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)


def _default(value: object) -> str:
    text = repr(value)
    return "…" if len(text) > 40 or text.startswith("<") else text


def _prose(doc: str) -> str:
    """A docstring as Markdown: doubled backticks are single ones, and doctests are code."""
    text = re.sub(r"``(.+?)``", r"`\1`", doc)
    parts = re.split(r"\n\n(?=>>> )", text)
    return "\n\n".join(
        f"```python {{ .doctest }}\n{part}\n```" if part.startswith(">>> ") else part for part in parts
    )


# Errors


@dataclass(frozen=True, slots=True)
class Raised:
    """A place that raises an error: its class, what it says and what it suggests, with … for what differs."""

    kind: str
    message: str
    hint: str


def raised_errors() -> list[Raised]:
    """Every error of Weft that the code raises with words of its own, each text once."""
    raised = set()
    for module in sorted(SOURCE.rglob("*.py")):
        for node in ast.walk(ast.parse(module.read_text(encoding="utf-8"))):
            error = _raised(node) if isinstance(node, ast.Call) else None
            if error is not None and re.search(r"[a-z]{3}", error.message):
                raised.add(error)
    return sorted(raised, key=lambda error: (error.kind, error.message.lower(), error.hint))


def _raised(node: ast.Call) -> Raised | None:
    """The error that a call makes: of a class of errors, or of a text of SQL by its method ``error``."""
    texts = [argument for argument in node.args if _words(argument) != "…"]
    hint = next((_words(keyword.value) for keyword in node.keywords if keyword.arg == "hint"), "")
    if isinstance(node.func, ast.Name) and _is_weft_error(getattr(errors, node.func.id, None)) and node.args:
        return Raised(node.func.id, _words(node.args[0]), hint)
    if isinstance(node.func, ast.Attribute) and node.func.attr == "error" and texts:
        return Raised("SqlError", _words(texts[0]), hint or (_words(texts[1]) if len(texts) > 1 else ""))
    return None


def _is_weft_error(value: object) -> bool:
    return inspect.isclass(value) and issubclass(value, WeftError)


def _words(node: ast.expr) -> str:
    """The text that an expression gives, with … for what is known only when it happens."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(_words(part) for part in node.values)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return _words(node.left) + _words(node.right)
    if isinstance(node, ast.IfExp):
        return (
            f"{_words(node.body)} / {_words(node.orelse)}"
            if _words(node.orelse) != "…"
            else _words(node.body)
        )
    return "…"


def errors_page() -> str:
    """Every class of error with its code, and all that errors of it say."""
    parts = [
        "# Errors",
        "Whatever you can cause is a `weft.WeftError`. It names the stage, the thing and, where there is one, the"
        " remedy, and has a short `code`. What differs from case to case is … here. The lists are made from the code.",
    ]
    raised = raised_errors()
    classes = [value for value in vars(errors).values() if _is_weft_error(value)]
    rows = ["| code | class | begins with | means |", "|---|---|---|---|"]
    for kind in classes:
        meaning = (inspect.getdoc(kind) or "").split("\n\n")[0].replace("\n", " ").replace("``", "`")
        rows.append(
            f"| [{kind.code}](#{kind.code.lower()}) | `{kind.__name__}` | `{kind.stage}:` | {meaning} |"
        )
    parts.append("\n".join(rows))
    for kind in classes:
        own = [error for error in raised if error.kind == kind.__name__]
        if own:
            lines = ["| it says | what to do |", "|---|---|"]
            lines += [f"| {_plain(error.message)} | {_plain(error.hint)} |" for error in own]
            parts += [f"## {kind.code}\n\n`{kind.__name__}`: {len(own)} messages.", "\n".join(lines)]
        else:
            parts.append(f"## {kind.code}\n\n`{kind.__name__}`.")
    return "\n\n".join(parts) + "\n"


def _plain(text: str) -> str:
    """A message as a cell of a table: nothing in it is Markdown or HTML."""
    text = re.sub(r"\s+", " ", text).strip()
    return re.sub(r"([\\`*_\[\]<>|#~])", r"\\\1", text)


# For language models


def llms_page() -> str:
    """What the site has, for programs that read: a line for each page, in the form of llms.txt."""
    lines = [
        "# Weft",
        "",
        "> Optimised multi-way stream joins on Apache Spark, in Python: SQL over many streams, a window per stream,"
        " inner, outer, semi, anti and ASOF joins, many queries as one plan, exactly once.",
        "",
        "## Pages",
        "",
    ]
    for page in sorted(DOCS.rglob("*.md")):
        if "decisions" not in page.parts:
            title, sentence = _summary(page.read_text(encoding="utf-8"))
            lines.append(f"- [{title}]({page.relative_to(DOCS).with_suffix('.html').as_posix()}): {sentence}")
    return "\n".join(lines) + "\n"


def _summary(text: str) -> tuple[str, str]:
    """The title of a page, and its first sentence."""
    title = text.split("\n", 1)[0].lstrip("# ")
    paragraphs = [part for part in text.split("\n\n")[1:] if part and part[0] not in "#|!`-<"]
    prose = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", " ".join(paragraphs[0].split())) if paragraphs else ""
    return title, re.split(r"(?<=[.:])\s", prose)[0]


PAGES = {
    "reference/functions.md": functions_page,
    "reference/python.md": python_page,
    "reference/errors.md": errors_page,
}


def write_pages() -> None:
    """Write all pages of reference, and then the list of all pages."""
    for name, make in PAGES.items():
        (DOCS / name).write_text(make(), encoding="utf-8")
    (DOCS / "llms.txt").write_text(llms_page(), encoding="utf-8")


if __name__ == "__main__":
    write_pages()
