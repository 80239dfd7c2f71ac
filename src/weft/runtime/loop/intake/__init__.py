"""What the streams bring: offers of cursors, versions of tables, derived streams; how streams come, block and go."""
