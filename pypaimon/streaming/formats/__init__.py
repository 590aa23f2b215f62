"""File formats, read and written (`registry` lists them); metadata files; serialised rows."""
