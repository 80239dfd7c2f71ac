"""How the stored state becomes that of a new graph.

Guarantees: pure. A store keeps its runs if all queries that use it used it before, or are new and can tell which of the
stored tuples are for them; queries that it is being filled for (`StoreNode.filling`) wait until what it lacks is of no
use any more. Any other store is filled from the stores that its queries had: the job at the boundary
reads these (`StoreScan`), the tuples of each query from one store, and runs them through the new graph as one batch,
before which nothing is stored. So a store may hold a tuple more than once, each time for other queries; a query that
comes later sees only the first of them. A store that no query uses is dropped.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from weft.plan.physical.graph import PhysicalGraph
from weft.plan.physical.rules import ProbeRule, ResultRule, StoreRule, Users
from weft.runtime.program.executable import ExecutableGraph
from weft.runtime.program.store_plans import StorePlan
from weft.runtime.queries.visibility import COPIES, FOUND, NULLS, StateFacts, stores_of

__all__ = ["StateMigration", "StoreScan", "edges_for", "evicted_after", "kept_after", "migration_between"]


@dataclass(frozen=True, slots=True)
class StoreScan:
    """Tuples of an input to be read from a store, for some queries.

    With ``copies``, the same tuples are read from another store too, for other queries; they are marked, so that a
    query that comes later does not see them twice. A ``replicated`` store holds every tuple in every partition.
    """

    alias: str
    store: str
    users: Users
    copies: bool = False
    replicated: bool = False

    def is_read_in(self, partition: int) -> bool:
        """Whether the part in a partition is read; of a replicated store, only that in partition 0 is."""
        return partition == 0 or not self.replicated


@dataclass(frozen=True, slots=True)
class StateMigration:
    """The job at a boundary.

    ``reads`` is what it reads from stores of the old graph, ``fills`` are the identities of the stores it fills, and
    ``backfill`` the queries that it also gives the results that lie in the stored past.
    """

    reads: tuple[StoreScan, ...] = ()
    fills: tuple[str, ...] = ()
    backfill: Users = ()

    @property
    def is_needed(self) -> bool:
        """Whether there is anything to do."""
        return bool(self.reads)


def migration_between(
    old: ExecutableGraph | None,
    new: ExecutableGraph,
    backfill: Iterable[str] = (),
    *,
    filled: bool = False,
) -> StateMigration:
    """The migration from an old graph to a new one; without an old graph, there is nothing to do.

    ``filled`` says that the stores which were being filled in the old graph have all that is of use by now.
    """
    if old is None:
        return StateMigration()
    had = {store.identity: store for store in old.stores.values()}
    beside = any(store.node.filling for store in new.stores.values())
    stays = (_stays(old, store, had, filled=filled, beside=beside) for store in new.stores.values())
    every = zip(new.stores.values(), stays, strict=True)
    fills = [store for store, kept in every if not kept and not store.is_table]
    wanted = _wanted(new, fills, tuple(backfill))
    reads: dict[tuple[str, str], list[str]] = {}
    for alias, users in sorted(wanted.items()):
        for name in sorted(users):
            store = _kept_for(old, new, alias, name)
            if store is not None:
                reads.setdefault((alias, store), []).append(name)
    found = [
        StoreScan(alias, store, tuple(names), replicated=had[store].node.layout.kind == "replicated")
        for (alias, store), names in sorted(reads.items())
    ]
    first = {read.alias: read for read in sorted(found, key=lambda read: len(read.users))}
    marked = tuple(replace(read, copies=read is not first[read.alias]) for read in found)
    return StateMigration(marked, tuple(sorted(store.identity for store in fills)), tuple(sorted(backfill)))


def _stays(
    old: ExecutableGraph, store: StorePlan, had: Mapping[str, StorePlan], *, filled: bool, beside: bool
) -> bool:
    """Whether a store of the new graph can keep its runs, because they have what all of its users need.

    For queries that have just begun, this is so in the store of an input, where they can tell which tuples are theirs.
    While stores are filled ``beside`` it, queries are answered as before: if it gets more columns, these are for what
    is filled, to which tuples that came before are of no use.
    """
    answered = set(store.node.users) - set(store.node.filling)
    before = had.get(store.identity)
    if before is None:
        return not answered
    strangers = answered - (set(before.node.users) - (set() if filled else set(before.node.filling)))
    if len(store.node.aliases) == 1:
        return not strangers & set(old.members)
    return not strangers and (beside or set(store.columns) - set(store.sets) <= set(before.columns))


def _wanted(new: ExecutableGraph, fills: Sequence[StorePlan], backfill: Users) -> dict[str, set[str]]:
    """The queries whose stored tuples have to be read, by input."""
    found: dict[str, set[str]] = {}
    for store in fills:
        for alias in store.node.aliases:
            found.setdefault(alias, set()).update(store.node.users)
    for name in backfill:
        for alias in new.members[name].query.aliases:
            found.setdefault(alias, set()).add(name)
    return found


def _kept_for(old: ExecutableGraph, new: ExecutableGraph, alias: str, name: str) -> str | None:
    """The identity of the old store that holds a query's tuples of an input; None if there is none."""
    stores = stores_of(old, alias)
    if name in old.members:
        homes = {home for sweep in old.graph.sweeps if sweep.query == name for home in sweep.homes}
        mine = [store for store in stores if name in set(store.node.users) - set(store.node.filling)]
        mine.sort(
            key=lambda store: store.name not in homes
        )  # a store that rows are closed from keeps tuples longer
        return mine[0].identity if mine else None
    return new.members[name].visibility(alias).store


def edges_for(graph: PhysicalGraph, migration: StateMigration) -> frozenset[str]:
    """The edges that the job at a boundary uses: those that lead to the stores it fills and the results it gives."""
    filled = {store.name for store in graph.stores if store.identity in migration.fills}
    inputs = {store.name for store in graph.stores if len(store.aliases) == 1}
    before = {name: rule for rule in graph.rules if isinstance(rule, ProbeRule) for name in rule.outputs}
    wanted = set()
    for rule in graph.rules:
        stores = isinstance(rule, StoreRule) and rule.store in filled | inputs
        answers = isinstance(rule, ResultRule) and bool(set(rule.users) & set(migration.backfill))
        if stores or answers:
            wanted.add(rule.edge)
    probed = _sources_of(graph, wanted, before)
    while len(probed) > len(wanted):
        wanted, probed = probed, _sources_of(graph, probed, before)
    return frozenset(wanted)


def _sources_of(graph: PhysicalGraph, wanted: set[str], before: Mapping[str, ProbeRule]) -> set[str]:
    """The edges with those that lead to them, and those that add to the stores which are probed on the way."""
    found = wanted | {before[edge].edge for edge in wanted if edge in before}
    probed = {rule.store for rule in graph.rules if isinstance(rule, ProbeRule) and rule.edge in found}
    return found | {rule.edge for rule in graph.rules if isinstance(rule, StoreRule) and rule.store in probed}


def kept_after(
    old: ExecutableGraph | None, new: ExecutableGraph, migration: StateMigration, facts: StateFacts
) -> dict[str, dict[str, int]]:
    """`StateFacts.kept` after a migration: since which batch every input's store keeps its columns."""
    filled = set(migration.fills)
    found: dict[str, dict[str, int]] = {}
    for store in new.stores.values():
        if len(store.node.aliases) > 1:
            continue
        sources = [r.store for r in migration.reads if r.alias == store.node.aliases[0]]
        known = [facts.kept.get(s, {}) for s in (sources if store.identity in filled else [store.identity])]
        first = 0 if old is None else facts.number
        names = [*store.columns, *((NULLS,) if new.keeps_nulls(store) else ())]
        found[store.identity] = {
            name: max((one.get(name, first) for one in known), default=first) for name in names
        } | _copied(store, migration, facts)
        nulls = max((one.get(NULLS, first) for one in known), default=0) if store.identity in filled else 0
        found[store.identity][FOUND] = max([nulls, *(one.get(FOUND, 0) for one in known)])
    return found


def _copied(store: StorePlan, migration: StateMigration, facts: StateFacts) -> dict[str, int]:
    """The users of an input's store whose tuples in it are copies, or not all there, and the batch before which."""
    found: dict[str, int] = {}
    reads = {name: r for r in migration.reads if r.alias == store.node.aliases[0] for name in r.users}
    for name in store.node.users:
        source, until = store.identity, 0
        if name in store.node.filling:
            found[COPIES + name] = facts.kept.get(source, {}).get(COPIES + name, facts.number)
            continue
        if store.identity in migration.fills and name in reads:
            source, until = reads[name].store, facts.number if reads[name].copies else 0
        until = max(until, facts.kept.get(source, {}).get(COPIES + name, 0))
        if until:
            found[COPIES + name] = until
    return found


def evicted_after(new: ExecutableGraph, migration: StateMigration, facts: StateFacts) -> dict[str, int]:
    """`StateFacts.evicted` after a migration: the clock below which an input's store may have forgotten rows."""
    found: dict[str, int] = {}
    for store in new.stores.values():
        reads = [r.store for r in migration.reads if r.alias in store.node.aliases]
        sources = reads if store.identity in migration.fills else [store.identity]
        known = [facts.evicted[name] for name in sources if name in facts.evicted]
        if known and len(store.node.aliases) == 1:
            found[store.identity] = max(known)
    return found
