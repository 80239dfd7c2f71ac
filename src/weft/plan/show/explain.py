"""Texts that explain a plan, how rows without a partner are found, or that compare strategies.

Guarantees: the texts are derived from the graph, its estimates and, if it has run, its observation; equal values give
equal texts. Predicted and observed figures stand side by side in the same unit: the column *observed* belongs to the
one on its left. A figure that is not known is shown as `?`. The part on closing names every join that keeps rows
without a partner, when these leave, and from which stores they are found.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta

from weft.errors import WeftError
from weft.logical.expr.expression import Call, all_of, to_sql
from weft.logical.expr.user_functions import FunctionFigures, has_user_call
from weft.logical.outer.asof import asof_joins
from weft.logical.outer.group_closing import GroupEnd, group_ends
from weft.logical.outer.outer import joins, visible
from weft.logical.outer.waiting import AT_ONCE, waits
from weft.logical.query.grouping import Grouping
from weft.logical.query.join_tree import ASOF, LACKS_LEFT, Join
from weft.logical.query.ordering import Ordering
from weft.logical.query.query import Query
from weft.logical.query.window import Rows
from weft.logical.times import format_duration
from weft.plan.homes import locate_rows
from weft.plan.join_plan import CallCost, Cost, store_name
from weft.plan.physical.graph import Member, PhysicalGraph, StoreNode
from weft.plan.physical.rules import ProbeRule, StoreRule
from weft.plan.physical.search import describe_searches
from weft.plan.show.figures import number, table
from weft.plan.show.observation import Observation, StepSeen
from weft.stats.input_figures import REASONS, EdgeFigures

__all__ = ["compare", "explain"]


def explain(
    graph: PhysicalGraph,
    name: str = "query",
    strategy: str = "",
    observed: Observation | None = None,
    query: Query | None = None,
    calls: Sequence[CallCost] = (),
    ordering: Ordering | None = None,
) -> str:
    """The plan as text: its stores, then every input's probes with what they are expected to do.

    With ``observed``, which must be of this graph, what the probes did is shown next to the expectation. The graph has
    only the core of a query with outer joins; ``query`` is the whole query. ``calls`` are the expected costs of users'
    functions.
    """
    lines = [_title(graph, name, strategy)]
    lines += [f"Observed: {_summary(graph, observed)}"] if observed else []
    lines += ["", str(query or graph.query), ""]
    lines += [f"Results leave in order: {_ordered(ordering)}", ""] if ordering else []
    if observed:
        lines += ["Inputs", *table(_INPUT_HEADS, _input_rows(observed)), ""]
    if graph.stores:
        lines += ["Stores", *_store_table(graph, observed), ""]
    lines += _group_lines(graph)
    if any(isinstance(rule, ProbeRule) for rule in graph.rules):
        lines += ["Probe orders", *_step_table(graph, observed), ""]
    if observed and observed.edges:
        lines += ["Communication", *table(_EDGE_HEADS, _edge_rows(graph, observed)), ""]
    if calls:
        lines += ["Functions", *_call_table(calls, observed), ""]
    lines += _closing_lines(graph, observed)
    if observed:
        lines += ["Time per batch", *table(_HOP_HEADS, _hop_rows(observed)), ""]
    lines += [f"note: {note}" for note in _notes(graph)]
    lines += [f"note: {_ORDER}"] if observed and graph.stores else []
    return "\n".join(lines).rstrip() + "\n"


def _group_lines(graph: PhysicalGraph) -> list[str]:
    """Which groups are kept, in which hop they come together, and when they leave."""
    grouped = [(member, member.query.grouping) for member in graph.members if member.query.grouping]
    lines = []
    for member, grouping in grouped:
        given = {o.name: o.expr for o in member.query.projection}
        by = grouping.group_sql(given).partition(" HAVING ")[0].removeprefix(" GROUP BY ")
        closes, count = _group_closes(member, grouping), str(len(grouping.aggregates))
        lines.append((by or "all columns", count, grouping.mode, closes, str(graph.hops)))
    return ["Groups", *table(_GROUP_HEADS, lines), ""] if lines else []


def _group_closes(member: Member, grouping: Grouping) -> str:
    """When groups are complete, in words."""
    ends = group_ends(member.query, None if member.closing is None else member.closing.tree)
    if ends is None:
        return "when the input ends"
    given = {output.name: to_sql(output.expr) for output in member.query.projection}
    if grouping.window is not None:
        given[grouping.window.column] = "the end of their windows"
    return " and ".join(" or ".join(_since(end, given[end.column]) for end in some) for some in ends)


def _since(end: GroupEnd, time: str) -> str:
    if not end.after:
        return f"after {time}"
    side = "after" if end.after > timedelta(0) else "before"
    return f"{format_duration(abs(end.after))} {side} {time}"


def _ordered(ordering: Ordering) -> str:
    """An order in words."""
    if not ordering.by_arrival:
        return "event, by largest time, once the watermarks have passed it"
    inner = f", then by partner ({', '.join(ordering.inputs)})" if ordering.is_inner else ""
    blocks = f", in blocks of {ordering.precision} tuples" if ordering.precision > 1 else ""
    return f"{ordering.kind}, by last tuple{inner}{blocks}"


def _title(graph: PhysicalGraph, name: str, strategy: str) -> str:
    inputs = len(graph.sources)
    parts = [f"Plan of {name}", f"{inputs} input{'' if inputs == 1 else 's'}"]
    parts += [f"strategy {strategy}"] if strategy else []
    parts += [f"{graph.hops} hop{'' if graph.hops == 1 else 's'}"]
    if graph.cost and _is_walked(graph):
        parts.append(f"cost {number(graph.cost.total)}")
        parts.append(f"{number(graph.cost.storage)} tuples stored")
        parts.append(f"{number(graph.cost.probes)} probes/s, {number(graph.cost.shipped)} of them shipped")
    return " · ".join(parts)


def _is_walked(graph: PhysicalGraph) -> bool:
    """Whether probing finds results; the cost of results that are found by closing is not estimated."""
    return graph.members[0].walked


def _summary(graph: PhysicalGraph, seen: Observation) -> str:
    batches = f"{seen.batches} batch{'' if seen.batches == 1 else 'es'}"
    parts = [f"{batches} over {number(seen.seconds)} s of {seen.clock}", f"{number(seen.results)} results"]
    known = graph.cost and graph.stores and _is_walked(graph)
    predicted = f", predicted {number(_results(graph))}" if known else ""
    return " · ".join([*parts, f"{_figure(seen.rate(seen.results))} results/s{predicted}"])


def _results(graph: PhysicalGraph) -> float:
    """The predicted number of results per second: the sum of what the last step of every input gives."""
    probes = [list(graph.probes(alias)) for alias in graph.query.aliases]
    return sum(steps[-1].estimate.outgoing for steps in probes if steps and steps[-1].estimate)


def _figure(value: float | None) -> str:
    return "?" if value is None else number(value)


_ORDER = (
    "which input of a batch finds a result is up to the driver order; "
    "sums over the inputs compare better than single steps"
)

_INPUT_HEADS = ("input", "rows", "rows/s", *REASONS, "backlog")


def _input_rows(seen: Observation) -> list[tuple[str, ...]]:
    return [
        (
            alias,
            *(number(one.rows), _figure(seen.rate(one.rows))),
            *map(number, one.set_aside.values()),
            _figure(seen.backlog.get(alias)),
        )
        for alias, one in seen.inputs.items()
    ]


_HOP_HEADS = ("stage", "seconds")


def _hop_rows(seen: Observation) -> list[tuple[str, ...]]:
    rows = [(f"hop {hop}" if hop else "sources", number(seconds)) for hop, seconds in enumerate(seen.hops)]
    return [*rows, ("whole batch", number(seen.elapsed) if seen.elapsed else "?")]


_GROUP_HEADS = ("keys", "aggregates", "mode", "complete", "in hop")
_STORE_HEADS = ("store", "layout", "looked up by", "from hop", "kept for", "tuples", "new/s")


def _store_row(graph: PhysicalGraph, store: StoreNode) -> tuple[str, ...]:
    estimate = next((s for s in graph.cost.stores if s.store == store.aliases), None) if graph.cost else None
    return (
        store.name,
        str(store.layout),
        ", ".join((*map(str, store.indexes), *describe_searches(graph, store))) or "-",
        str(store.complete),
        _kept(graph, store),
        number(estimate.size) if estimate else "?",
        number(estimate.rate) if estimate else "?",
    )


def _store_table(graph: PhysicalGraph, seen: Observation | None) -> list[str]:
    rows = [_store_row(graph, store) for store in graph.stores]
    if seen is None:
        return table(_STORE_HEADS, rows)
    heads = (*_STORE_HEADS[:-1], "observed", "bytes", _STORE_HEADS[-1])
    return table(heads, [(*row[:-1], *_held(seen, row[0]), row[-1]) for row in rows])


def _held(seen: Observation, store: str) -> tuple[str, str]:
    found = seen.stores.get(store)
    return (number(found.rows), number(found.bytes)) if found else ("0", "0")


def _kept(graph: PhysicalGraph, store: StoreNode) -> str:
    if graph.query.input(store.aliases[0]).stream.table:
        return "the version"
    closing = graph.members[0].closing
    uses = [] if closing is None else list(asof_joins(graph.query, closing.tree))
    if store.retention == (None,) and any(u.versions == store.aliases[0] and u.superseded for u in uses):
        return "the latest of each key"
    spans = [
        " or ".join(filter(None, (_span(value), _rows(graph, alias)))) or "ever"
        for alias, value in zip(store.aliases, store.retention, strict=True)
    ]
    if len(spans) == 1:
        return spans[0]
    return ", ".join(f"{alias} {span}" for alias, span in zip(store.aliases, spans, strict=True))


def _span(value: timedelta | None) -> str:
    return "" if value is None else format_duration(value).lower()


def _rows(graph: PhysicalGraph, alias: str) -> str:
    window = graph.query.input(alias).window
    if not isinstance(window, Rows):
        return ""
    return f"{window.count} rows" + (f" per {', '.join(window.per)}" if window.per else "")


_STEP_HEADS = ("step", "hop", "edge", "checks", "in/s", "copies", "out/s", "cost")


_SEEN_HEADS = (
    *_STEP_HEADS[:5],
    "observed",
    "copies",
    "out/s",
    "observed",
    "matches/probe",
    "observed",
    "cost",
)


def _step_table(graph: PhysicalGraph, seen: Observation | None) -> list[str]:
    return table(_SEEN_HEADS if seen else _STEP_HEADS, _step_rows(graph, seen))


def _step_rows(graph: PhysicalGraph, seen: Observation | None) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = []
    for alias in graph.query.aliases:
        for position, rule in enumerate(graph.probes(alias)):
            edge = graph.edge(rule.edge)
            arrow = f"{alias} → {rule.store}" if position == 0 else f"{' ' * len(alias)} → {rule.store}"
            figures = _side_by_side(rule, seen) if seen else _estimates(rule)
            rows.append((arrow, str(edge.hop), str(edge), _checks(rule), *figures))
            rows += [
                (*_stored_row(graph, output, len(alias)), *("" for _ in figures))
                for output in rule.outputs
                if _stores(graph, output)
            ]
    return rows


def _stores(graph: PhysicalGraph, edge: str) -> bool:
    return any(isinstance(rule, StoreRule) and rule.edge == edge for rule in graph.rules)


def _stored_row(graph: PhysicalGraph, name: str, indent: int) -> tuple[str, ...]:
    edge = graph.edge(name)
    return (f"{' ' * indent}   stored in {edge.target}", str(edge.hop), str(edge), "")


def _checks(rule: ProbeRule) -> str:
    return " AND ".join([*map(str, rule.equalities), *map(str, rule.predicates)]) or "every pair"


def _estimates(rule: ProbeRule) -> tuple[str, str, str, str]:
    found = rule.estimate
    if found is None:
        return ("?", "?", "?", "?")
    return (number(found.incoming), number(found.copies), number(found.outgoing), number(found.cost))


def _side_by_side(rule: ProbeRule, seen: Observation) -> tuple[str, ...]:
    incoming, copies, outgoing, cost = _estimates(rule)
    found, step = rule.estimate, seen.steps.get(rule.edge, StepSeen(0, 0))
    each = found.outgoing / found.incoming if found and found.incoming else None
    return (
        *(incoming, _figure(seen.rate(step.probes)), copies),
        *(outgoing, _figure(seen.rate(step.matches))),
        *(_figure(each), _figure(step.matches_per_probe), cost),
    )


_EDGE_HEADS = ("from", "to", "hop", "edge", "sent", "tuples/s", "bytes/s")


def _edge_rows(graph: PhysicalGraph, seen: Observation) -> list[tuple[str, ...]]:
    """What was sent over every edge, and over all together; tuples that are there already are not sent."""
    rows = [
        (
            *(edge.source, edge.target, str(edge.hop), str(edge)),
            *(number(sent.tuples), _figure(seen.rate(sent.tuples)), _figure(seen.rate(sent.bytes))),
        )
        for edge, sent in ((graph.edge(name), sent) for name, sent in seen.edges.items())
    ]
    total = sum(seen.edges.values(), EdgeFigures())
    figures = (number(total.tuples), _figure(seen.rate(total.tuples)), _figure(seen.rate(total.bytes)))
    return [*rows, ("all", "", "", "", *figures)]


_CALL_HEADS = ("function", "condition", "µs/row", "lets through")


def _call_table(calls: Sequence[CallCost], seen: Observation | None) -> list[str]:
    if seen is None:
        return table(_CALL_HEADS, [(one.function, one.condition or "-", *_call(one)) for one in calls])
    heads = (*_CALL_HEADS[:3], "observed", _CALL_HEADS[3], "observed", "rows")
    return table(heads, [_call_row(one, seen) for one in calls])


def _call(one: CallCost) -> tuple[str, str]:
    return number(one.seconds * 1e6), number(one.selectivity) if one.condition else "-"


def _call_row(one: CallCost, seen: Observation) -> tuple[str, ...]:
    found = seen.functions.get(one.function, FunctionFigures())
    each = found.seconds_per_row
    passed = _figure(seen.selectivities.get(one.name)) if one.condition else "-"
    (seconds, selectivity), micros = _call(one), None if each is None else each * 1e6
    figures = (seconds, _figure(micros), selectivity, passed, number(found.rows))
    return (one.function, one.condition or "-", *figures)


def _notes(graph: PhysicalGraph) -> list[str]:
    notes = []
    endless = [s.name for s in graph.stores if len(s.aliases) == 1 and _kept(graph, s) == "ever"]
    if endless:
        notes.append(
            f"nothing bounds the state of {', '.join(endless)}; it grows for ever "
            "(give a window, or compare event times)"
        )
    if graph.query.cross and graph.members[0].walked:
        notes.append("this is a cross product: some probes match every stored tuple")
    for term in (*graph.query.predicates, *graph.query.residuals):
        if isinstance(term, Call) and term.function == "=" and has_user_call(term):
            notes.append(
                f"{term} is checked pair by pair, since no function is a key (compute it in the stream)"
            )
    for one in graph.cost.stores if graph.cost else ():
        if one.tasks > 1 and one.capacity is not None:
            many = f"{store_name(one.store)} needs about {one.tasks} tasks"
            notes.append(f"{many}: one copes with {number(one.capacity)} of its tuples")
    return notes


def compare(costs: Mapping[str, Cost | WeftError]) -> str:
    """Strategies side by side, the cheapest first; one that failed says why."""
    good = {name: cost for name, cost in costs.items() if isinstance(cost, Cost)}
    best = min((cost.total for cost in good.values()), default=0.0)
    rows = [
        (
            name,
            number(cost.total),
            f"{cost.total / best:.2f}×" if best else "1.00×",
            str(cost.hops),
            number(cost.storage),
            number(cost.probes),
            number(cost.shipped),
            number(cost.latency),
        )
        for name, cost in sorted(good.items(), key=lambda item: (item[1].total, item[0]))
    ]
    heads = ("strategy", "cost", "of best", "hops", "stored", "probes/s", "shipped/s", "latency")
    failed = [f"  {name}: {e.message}" for name, e in costs.items() if isinstance(e, WeftError)]
    return "\n".join(["Strategies", *table(heads, rows), *failed]) + "\n"


def _closing_lines(graph: PhysicalGraph, seen: Observation | None) -> list[str]:
    """The lines that explain the closing of a graph of one query; an empty list if it has nothing to close."""
    lines: list[str] = []
    for sweep in graph.sweeps:
        member = graph.member(sweep.query)
        if member.closing is None:
            continue
        waiting = waits(member.query, member.closing.tree)
        lines += ["Closing"]
        for at, join in joins(member.closing.tree):
            lines += [f"  {line}" for line in _join(at, join, waiting)]
        if member.closing.where:
            lines.append(f"  of all rows, those with {to_sql(all_of(member.closing.where))}")
        lines.append(f"  {_place(graph, member.closing.tree, sweep.homes)}")
        if not member.closing.walked:
            lines.append("  rows that miss nothing are found there, too")
        lines += [f"  observed: {seen.closed:,} of {seen.results:,} results"] if seen else []
        lines.append("")
    return lines


def _join(at: int, join: Join, waiting: dict[tuple[int, str], timedelta | None]) -> Iterator[str]:
    """Lines that say what a join does with rows that have no partner."""
    if join.kind in ("inner", "semi"):
        return
    if join.kind in ASOF:
        asked = [name for name in visible(join.left) if waiting[at, name] is not None]
        yield (
            f"{', '.join(visible(join.left))} with one version of {_described(join, join.left)}: "
            + (
                f"leave when time has passed {' or '.join(asked)}"
                if asked
                else "leave at the end of the input"
            )
        )
        return
    for side in (join.left, join.right) if join.kind in LACKS_LEFT else (join.left,):
        names = visible(side)
        bounded = [
            f"{name} + {format_duration(wait).lower()}" for name in names if (wait := waiting[at, name])
        ]
        now = [name for name in names if waiting[at, name] == timedelta(0)]
        ends = " or ".join([*now, *bounded])
        when = f"leave when time has passed {ends}" if ends else "leave at the end of the input"
        if all(waiting[at, name] == AT_ONCE for name in names):
            when = "leave at once"
        yield f"{', '.join(names)} without a partner in {_described(join, side)}: {when}"


def _described(join: Join, side: Join | str) -> str:
    away = join.right if side is join.left else join.left
    return (
        f"{', '.join(visible(away))} ({join.kind} join on {to_sql(all_of(join.on)) if join.on else 'TRUE'})"
    )


def _place(graph: PhysicalGraph, tree: Join, homes: tuple[str, ...]) -> str:
    stores = [graph.store(name) for name in homes]
    place = locate_rows(tree, {store.aliases[0]: store.layout for store in stores})
    named = ", ".join(f"{store.name} ({store.layout})" for store in stores)
    where = "in one partition" if place is None or place.everywhere else "in every partition for itself"
    return f"looked for {where}, from {named}"
