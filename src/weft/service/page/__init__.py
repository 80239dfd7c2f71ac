"""The web page of a running session, one small file for each view; `mount_page` puts it into an application."""
