"""Tables kept live in memory: asked by key, as Arrow or with SQL, at one snapshot each time."""
