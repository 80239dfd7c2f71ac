"""One batch after the other: look, decide, write the plan, execute, commit the results, commit the manifest."""
