"""One hop of a graph in one partition: admit, route, probe, project, close, sort."""
