"""Where what must survive is kept: a directory of this machine's file system, or the memory of this process."""
