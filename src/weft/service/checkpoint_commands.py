"""`weft checkpoint`: what is done to a checkpoint as a whole.

Guarantees: what an option names is a path of this machine, which becomes absolute, or the URI of an object store; any
other URI is refused and not taken for a path.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

__all__ = ["checkpoint_app", "named_checkpoint"]

checkpoint_app = typer.Typer(help="What is done to a checkpoint as a whole.", no_args_is_help=True)


@checkpoint_app.callback()
def _group() -> None:
    """What is done to a checkpoint as a whole."""


@checkpoint_app.command()
def copy(
    source: Annotated[str, typer.Argument(help="The checkpoint of a stopped session: a directory or a URI.")],
    target: Annotated[str, typer.Argument(help="Where to: a place that has nothing yet.")],
) -> None:
    """Copy the checkpoint of a stopped session to another storage, and compare what was copied."""
    from weft.runtime.log.copying import copy_checkpoint  # other commands need not load it
    from weft.storage.objects import ObjectStorage
    from weft.storage.places import storage_at

    places = storage_at(source), storage_at(target)
    for one in places:
        if isinstance(one, ObjectStorage):
            one.check()
    done = copy_checkpoint(*places)
    typer.echo(f"{done.entries} entries, {done.bytes:,} bytes: copied and compared")
    typer.echo(f"go on with {places[1].locate('').rstrip('/')}, and no more with the old one")


def named_checkpoint(place: str | None) -> Path | str | None:
    """The checkpoint that an option names."""
    from weft.session.validation import checkpoint_path  # other commands need not load it

    return None if place is None else checkpoint_path(place)
