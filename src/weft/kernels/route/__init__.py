"""Which partition a tuple goes to, which keys are heavy, and samples of columns."""
