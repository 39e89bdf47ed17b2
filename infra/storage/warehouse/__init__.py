"""Tables that are no files: of databases, and of lakehouses that keep versions, read as a stream into the store."""
