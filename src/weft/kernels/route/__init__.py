"""Which partition a tuple goes to, and which keys are heavy."""
