"""Tables that streams look up."""
