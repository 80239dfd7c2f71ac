"""What passes between the driver and its tasks, and between tasks: task inputs, messages, reports, channels."""
