"""The public names of Weft: each stands once, and is imported when somebody asks for it."""

from __future__ import annotations

import inspect
import subprocess
import sys
from importlib import import_module
from typing import Any

import pytest

import weft
from weft.service.pipeline.settings import SETTINGS
from weft.session.settings import Settings


def test_every_name_is_there_and_is_what_it_is_at_home() -> None:
    """`from weft import *` gives all of them, `dir` shows them."""
    names: dict[str, object] = {}
    exec("from weft import *", names)
    assert {*weft._homes()} <= names.keys()
    assert {*weft._homes()} <= {*dir(weft)}
    for name, home in weft._homes().items():
        assert names[name] is getattr(import_module(home), name)


def test_a_name_that_is_not_there_is_an_attribute_error() -> None:
    """Not a `KeyError`, by which `hasattr` would fail."""
    assert not hasattr(weft, "Sesion")
    assert not hasattr(weft, "__nothing__")
    with pytest.raises(ImportError):
        exec("from weft import Sesion")


def test_importing_weft_loads_little() -> None:
    """Spark's workers import it before anything else."""
    code = "import sys, weft; print(sorted(name for name in sys.modules if name.startswith('weft.')))"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert shown.strip() == "['weft.version']"


def test_a_session_has_the_options_of_its_settings() -> None:
    """By the same names, with the same defaults; and so have pipeline files, but for what they write otherwise."""
    session, settings = (inspect.signature(one).parameters for one in (weft.Session, Settings))
    assert dict(session) == dict(settings)
    assert {*settings} - {*SETTINGS} == {"spark", "statistics", "options"}


def test_an_option_that_is_not_there_is_refused_with_the_nearest() -> None:
    """As Python refuses keywords, by a `TypeError`."""
    with pytest.raises(TypeError, match="Session has no option 'chekpoint': did you mean checkpoint"):
        weft.Session(chekpoint="ck")  # type: ignore[call-arg]


def test_none_stands_for_the_default_of_an_option() -> None:
    """Programs hand on what they were not given."""
    options: Any = None
    assert weft.Session(options=options, limits=options, statistics=options).statistics == weft.Statistics()
