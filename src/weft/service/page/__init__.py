"""The web page of a running session: one small file for each view, over `SessionHub`; `mount_page` puts it into an app."""
