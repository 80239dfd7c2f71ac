"""How the plan of running queries follows the data: epochs, a planner in the background, and what became of plans."""
