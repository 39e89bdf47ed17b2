"""Make the database that is named, where there is none, on the server that libpq's variables name (`PGHOST`, …)."""

import sys

import psycopg
from psycopg import sql

(name,) = sys.argv[1:]
with psycopg.connect(dbname="postgres", autocommit=True, connect_timeout=10) as connection:
    if connection.execute("SELECT FROM pg_database WHERE datname = %s", [name]).fetchone() is None:
        connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
