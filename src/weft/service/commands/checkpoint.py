"""`weft checkpoint` and `weft watermark`: what is done to a checkpoint as a whole.

Guarantees: a checkpoint is copied only while no session uses it, and what was copied is compared. `weft watermark`
changes nothing without a time. A checkpoint that a session uses is only shown: the session itself, or the service it
runs in, is the one to set a watermark.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from weft.errors import ConfigError
from weft.logical.times import moment_of, shown_time

__all__ = ["checkpoint_app", "named_checkpoint", "watermark"]


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
    from weft.storage.storage import storage_at

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


def watermark(
    place: Annotated[
        str,
        typer.Argument(
            help="A checkpoint (a directory or a URI), or the http:// address of a running service."
        ),
    ],
    stream: Annotated[str | None, typer.Argument(help="The stream whose watermark is to be set.")] = None,
    to: Annotated[
        str | None,
        typer.Option("--to", metavar="TIME", help="The time it is to be, as in 2026-01-31T12:00:00."),
    ] = None,
) -> None:
    """Show the watermarks of all streams and what moved them, or set that of one which a wrong time has moved."""
    if (stream is None) != (to is None):
        raise ConfigError(
            "a stream and a time go together", hint='as in weft watermark ck views --to "2026-01-31"'
        )
    remote = place.startswith(("http://", "https://"))
    if stream is None or to is None:
        _show_remote(place) if remote else _show(place)
        return
    moment = moment_of(to, "--to")
    if remote:
        from weft.service.client import Client  # other commands need not load it

        Client(place).set_watermark(stream, to)
    else:
        from weft.runtime.loop.intake.watermark_resets import reset_stopped
        from weft.session.validation import checkpoint_path
        from weft.storage.storage import storage_at

        reset_stopped(storage_at(str(checkpoint_path(place))), stream, moment)
    when = "the next batch" if remote else "the first batch of the next session"
    typer.echo(f"stream {stream}: its watermark is {shown_time(moment)} from {when} on")


def _show(place: str) -> None:
    from weft.runtime.observe.inspect import inspect
    from weft.session.validation import checkpoint_path

    for one in inspect(checkpoint_path(place)).streams:
        mark = "not known" if one.watermark is None else shown_time(one.watermark)
        typer.echo(f"{one.name}: {mark}{_moved(one.moved)}")


def _moved(moved: tuple[int, int, str] | None) -> str:
    if moved is None:
        return ""
    time, batch, where = moved
    return f", moved by a record of {shown_time(time)} in batch {batch}{f' ({where})' if where else ''}"


def _show_remote(place: str) -> None:
    from weft.service.client import Client

    for one in Client(place).streams():
        mark = "not known" if one.watermark is None else one.watermark.isoformat(" ")
        typer.echo(f"{one.name}: {mark}")
