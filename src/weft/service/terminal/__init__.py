"""What people see of a run or of a checkpoint in a terminal, and how a run is waited for there."""
