"""Join trees with outer, semi and anti joins over relations in memory."""
