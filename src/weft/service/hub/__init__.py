"""What the API and the web page know of a running session: `SessionHub`, plain values out, safe from any thread."""
