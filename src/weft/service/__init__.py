"""The command line, pipeline files, the service with its interface and its page."""
