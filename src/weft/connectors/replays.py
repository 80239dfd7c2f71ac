"""Which batches a table may have already when they are to be added.

Guarantees: a batch is skipped only if the table had it when the session went on, or if this sink has tried to add it.
A batch that appears in between was added by somebody else under the same checkpoint: a second session, or another query
whose sink names the same table differently. Its rows are not these rows, so that is an error, and nothing is skipped
in silence.
"""

from __future__ import annotations

from dataclasses import dataclass

from weft.errors import SinkError

__all__ = ["Replays"]


@dataclass(slots=True)
class Replays:
    """What a sink knows of the batches in its table; ``function`` is what the user called, for errors."""

    function: str
    table: str
    _known: int = -1  # the last batch that was there at the start, or that was tried since

    def recover(self, last_committed: int, last_there: int) -> None:
        """Learn which batch the table has; one that the checkpoint cannot have made is an error."""
        if last_there > last_committed + 1:
            raise SinkError(
                f"{self.function}: {self.table} has batch {last_there}, but the checkpoint ends with {last_committed}",
                hint="write to another table, or continue with the checkpoint that this one was written by",
            )
        self._known = last_there

    def is_there(self, batch_id: int, last_there: int) -> bool:
        """Whether a batch need not be added, given the last one that the table has; if not, it is being tried now."""
        if last_there < batch_id:
            self._known = max(self._known, batch_id)
            return False
        if batch_id <= self._known:
            return True
        raise SinkError(
            f"{self.function}: {self.table} has got batch {batch_id} from another query or session of this checkpoint",
            hint="let one query write to the table, and one session use the checkpoint",
        )
