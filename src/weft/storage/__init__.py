"""Named bytes: on a disk, in memory (`storage`), or in an object store (`objects`) with a `cache` on every host.

`uris` says which storage a text names, `paths` what a path means on this machine.
"""
