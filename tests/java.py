"""Java's options in tests of Spark."""

QUICK_JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""Its quick compiler alone: sessions of seconds take a third of their CPU time less."""
