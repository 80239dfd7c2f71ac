"""A workload by every method of the joint optimiser, compared with the definition; and what was met on the way."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator

from tests.equivalence.drive import Boundary, Course, Setting, random_setting, run
from tests.equivalence.oracle import PERIOD
from tests.equivalence.visibilities import PAST, Chronicle, Expected, came_in, difference, whenever
from tests.equivalence.workloads import Life, Workload
from weft.logical.expr.expression import aliases
from weft.logical.query.query import Query
from weft.logical.query.window import Range, Rows, Unbounded, Window
from weft.optimizer.joint.methods import METHODS
from weft.plan.physical.derive import filters_of
from weft.plan.physical.graph import Member, PhysicalGraph
from weft.plan.physical.rules import ProbeRule, ResultRule


def check_workload(
    workload: Workload,
    seed: int,
    met: Counter[str],
    settings: Callable[[Workload, str, int], Setting] = random_setting,
    also: Callable[[Course], Iterable[str]] = lambda _: (),
) -> None:
    """A workload by every method; ``also`` says what else a course met."""
    lives = workload.lives()
    arrivals = [number * PERIOD for number in range(len(workload.changes))]
    chronicle = Chronicle(workload.streams, arrivals, lives)
    for place, method in enumerate(METHODS):
        course = run(workload, settings(workload, method, len(METHODS) * seed + place))
        orders = [course.metrics[n].order if n in course.metrics else () for n in range(len(arrivals))]
        found = {*_met(workload, course), *also(course)}
        for name, life in lives.items():
            results = came_in(course.results.get(name, []))
            if life.query.outer is None:
                expected = chronicle.expected(course.members[name], orders)
                found |= {"results of old and new tuples"} if expected.across else set()
            else:
                expected, results = chronicle.expected_of_outer(course.members[name]), whenever(results)
                found |= set(_outer(life, expected))
            wrong = difference(expected, results)
            about = f"{name} in [{life.first}, {life.last})"
            assert not wrong, f"seed {seed}, {method}, {about}: {wrong}: {life.query}"
        check_rows(course, chronicle)
        met.update(found)


def _outer(life: Life, expected: Expected) -> Iterator[str]:
    """What there is in a query with outer, semi or anti joins."""
    yield "a query with outer joins"
    if life.first:
        yield "a newcomer with outer joins" + (" that asks for the past" if life.backfill else "")
        if expected.across:
            yield "rows of a newcomer that must miss something"
        if expected.most - expected.least:
            yield "rows that may not be known to miss something"


def check_rows(course: Course, chronicle: Chronicle) -> None:
    """As many tuples took part as should, and as many results were reported as there are."""
    for number, metrics in course.metrics.items():
        for query in chronicle.running(number):
            for input_ in query.inputs:
                expected = int((chronicle.tuples[input_.stream.name].batch == number).sum())
                assert metrics.inputs[input_.alias].rows == expected
        for name, count in metrics.answers.items():
            now = (number, PAST) if course.backfilled.get(name) == number else (number,)
            assert count == sum(table.num_rows for came, table in course.results[name] if came in now)


def _met(workload: Workload, course: Course) -> Iterator[str]:
    """What a case met."""
    for boundary in course.boundaries:
        yield from _shared(boundary)
        yield from _relayed(boundary)
        yield from _sights(boundary)
    if course.pauses:
        yield "no queries for a while"
    if any(change.begin and change.stop for change in workload.changes):
        yield "queries that leave and others that come at once"
    if any(came == PAST and t.num_rows for found in course.results.values() for came, t in found):
        yield "results that lie in the past"


def _shared(boundary: Boundary) -> Iterator[str]:
    graph = boundary.decision.graph
    if len(graph.members) > 1 and any(_by_three_only(member.query) for member in graph.members):
        yield "an input that only an equality over three joins, next to other queries"
    probes = [rule for rule in graph.rules if isinstance(rule, ProbeRule)]
    users = {output: set(rule.users) for rule in probes for output in rule.outputs}
    for store in graph.stores:
        if len(store.users) > 1:
            yield "a store with several users"
        if store.layout.heavy:
            yield "a store that scatters" + (" for several" if len(store.users) > 1 else "")
        if len(store.aliases) > 1:
            yield "an intermediate result"
            if len(store.users) > 1:
                yield "an intermediate result with several users"
    if len({store.group for store in graph.stores}) > 1:
        yield "stores of several groups"
    inputs = [store.aliases for store in graph.stores if len(store.aliases) == 1]
    if len(set(inputs)) < len(inputs):
        yield "stores of one input in several layouts"
    for rule in probes:
        if len(rule.users) > 1:
            yield "a probe with several users"
        if set(rule.users) < users.get(rule.edge, set()):
            yield "a probe with fewer users than the one before"
        if any(other.start == rule.start and other.users != rule.users for other in probes):
            yield "probes of one input for different users"
    if any(isinstance(rule, ResultRule) and len(rule.users) > 1 for rule in graph.rules):
        yield "results for several users at once"
    yield from _counted(graph)
    windows = {(i.alias, str(i.window)) for member in graph.members for i in member.query.inputs}
    if len(windows) > len(graph.aliases):
        yield "windows that differ"


def _by_three_only(query: Query) -> bool:
    """Whether an input is joined with the others by conditions over three or more of them only."""
    pairs = [set(key.aliases) for key in query.keys] + [aliases(predicate) for predicate in query.predicates]
    joined = {alias for pair in pairs for alias in pair}
    return any(aliases(residual) - joined for residual in query.residuals)


def _counted(graph: PhysicalGraph) -> Iterator[str]:
    for store in graph.stores:
        counted = {
            i.window
            for n in store.users
            for i in graph.member(n).query.inputs
            if i.counted_per and store.aliases == (i.alias,)
        }
        if counted:
            yield "tuples counted per key"
            if len(store.users) > 1:
                yield "tuples counted per key for several"
        if len(counted) > 1:
            yield "different counts per one key"


def _relayed(boundary: Boundary) -> Iterator[str]:
    if boundary.before is None:
        return
    migration, graph = boundary.decision.migration, boundary.decision.graph
    if migration.fills and migration.reads:
        yield "stores that are filled"
    if any(len(store.aliases) > 1 and store.identity in migration.fills for store in graph.stores):
        yield "intermediate results that are filled"
    if any(store.identity not in migration.fills for store in graph.stores):
        yield "stores that stay"


def _sights(boundary: Boundary) -> Iterator[str]:
    if boundary.before is None:
        return
    before = boundary.before.members
    taken = {member.slot for member in before.values()}
    for member in boundary.decision.graph.members:
        if member.name in before or len(member.query.aliases) == 1:
            continue
        if member.slot in taken:
            yield "a place that is taken again"
        if all(visibility.batch == 0 and visibility.since is None for visibility in member.visibilities):
            yield "a newcomer that sees all"
        elif all(visibility.batch == boundary.number for visibility in member.visibilities):
            yield "a newcomer that sees nothing"
        else:
            yield "a newcomer that sees a part"
        if member.closing is None and has_twin(boundary, member):
            yield "a twin of a query that runs"
            assert all(
                visibility.batch == 0 and visibility.since is None for visibility in member.visibilities
            ), f"{member.name} could see all that its twin has, and does not: {member}"


def has_twin(boundary: Boundary, newcomer: Member) -> bool:
    """Whether a query like it, or wider, has run from the beginning, in stores that go on for both."""
    if boundary.before is None:
        return False
    plan, migration = boundary.decision.plan, boundary.decision.migration
    wanted = {store.identity for store in plan.stores_of(newcomer.name) if store.is_input}
    for other in [one for one in boundary.before.members.values() if one.closing is None]:
        mine = {s.identity for s in boundary.before.graph.stores if other.name in s.users}
        since = [time for name in wanted for time in boundary.facts.kept.get(name, {}).values()]
        stays = wanted <= mine and not wanted & set(migration.fills) and not any(since)
        backfilled = (
            boundary.decision.migration.backfill and newcomer.name in boundary.decision.migration.backfill
        )
        if other.first == 0 and stays and not backfilled and covers(other.query, newcomer.query):
            return True
    return False


def covers(wide: Query, narrow: Query) -> bool:
    """Whether queries are alike but for outputs and windows, and those of the first are no narrower."""
    if (wide.aliases, wide.conditions, wide.keys) != (narrow.aliases, narrow.conditions, narrow.keys):
        return False
    return all(
        set(narrow.columns_of(alias)) <= set(wide.columns_of(alias))
        and filters_of(wide, alias) == filters_of(narrow, alias)
        and _covers(wide.input(alias).window, narrow.input(alias).window)
        for alias in wide.aliases
    )


def _covers(wide: Window, narrow: Window) -> bool:
    if isinstance(narrow, Rows) or isinstance(wide, Rows):
        return False  # what tuples there were is not told by their number
    if isinstance(wide, Unbounded):
        return True
    return isinstance(narrow, Range) and isinstance(wide, Range) and narrow.duration <= wide.duration
