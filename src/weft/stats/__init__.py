"""What is known of the data, and estimates made of it."""
