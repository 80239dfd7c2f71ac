"""Expressions computed on whole columns, as Spark SQL defines them."""
