"""`weft checkpoint`: what is done to a checkpoint as a whole.

Guarantees: a place that an option names is a path of this machine where a run can use nothing else; a URI is refused
and not taken for a path.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated

import typer

from weft.errors import ConfigError

__all__ = ["checkpoint_app", "local_checkpoint"]

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


def local_checkpoint(path: Path | None) -> Path | None:
    """The checkpoint that an option names, as an absolute path."""
    if path is not None and re.match(r"[A-Za-z][\w+.-]+:/", str(path)):
        raise ConfigError(
            f"--checkpoint {path} is not a path of this machine's file system",
            hint="pipelines keep their state in a directory; weft.Session(checkpoint=…) takes URIs",
        )
    return None if path is None else path.absolute()
