"""The version of Weft, which driver and workers must have in common."""

__all__ = ["__version__"]

__version__ = "0.2.0.dev0"
