"""The version of Weft, which driver and workers must have in common."""

__all__ = ["__version__"]

__version__ = "0.1.0.dev0"
