"""The queries that run: requests, changes, what a newcomer sees, and how state moves to a new plan."""
