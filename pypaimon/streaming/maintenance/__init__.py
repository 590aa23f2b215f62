"""Keep a table small: expire snapshots, changelogs, tags and consumers, and delete the files that nothing needs."""
