"""Values as SQL writes them: constants and types."""
