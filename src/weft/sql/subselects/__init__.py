"""Sub-selects in conditions, and lateral ones: how they become joins of the query around them."""
