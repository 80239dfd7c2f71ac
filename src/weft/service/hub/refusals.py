"""Why a service refuses what it is asked for, where that is more than an error of Weft's.

Guarantees: each is a `WeftError` with a message and, where there is one, a remedy; the API gives each its own status.
"""

from __future__ import annotations

from weft.errors import WeftError

__all__ = ["BusyError", "ConflictError", "ForbiddenError", "NotFoundError", "NotReadyError"]


class NotFoundError(WeftError):
    """What was asked for does not exist."""

    stage = "service"


class ConflictError(WeftError):
    """What was asked for does not go together with what is there."""

    stage = "service"


class BusyError(WeftError):
    """This client has asked for as much at a time as anybody may."""

    stage = "service"


class ForbiddenError(WeftError):
    """The operator has not allowed it."""

    stage = "service"


class NotReadyError(WeftError):
    """The session does not run, or not yet, or no longer."""

    stage = "service"
