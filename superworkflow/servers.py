"""Preparation of the servers of docker-compose.yml before they start: `python -m superworkflow.servers`.

Makes the databases, the tables of sweeps and the bucket where there are none, as often as it is called: also where the
volumes are older than a database that came later. Servers are found as by every client: PostgreSQL by `PGHOST`,
`PGUSER` and `PGPASSWORD`, S3 by the `AWS_*` variables.
"""

from __future__ import annotations

import argparse
import sys

import fsspec
import psycopg
from psycopg import sql

from superworkflow.infra.base.extras import require_extra


def make_database(name: str) -> bool:
    """Make a database where there is none; whether it was made."""
    with psycopg.connect(dbname="postgres", autocommit=True) as server:
        if server.execute("SELECT 1 FROM pg_database WHERE datname = %s", [name]).fetchone() is not None:
            return False
        server.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
        return True


def make_bucket(name: str) -> bool:
    """Make a bucket where there is none; whether it was made."""
    files = fsspec.filesystem("s3")
    if files.exists(name):
        return False
    files.mkdir(name)
    return True


def main() -> None:
    """Make what is missing, and say what that was."""
    parser = argparse.ArgumentParser(prog="python -m superworkflow.servers", description=__doc__)
    parser.add_argument("--database", action="append", default=[], help="made where there is none; may be repeated")
    parser.add_argument("--studies", metavar="URL", help="database in which the tables of sweeps are made")
    parser.add_argument("--bucket", help="made where there is none")
    options = parser.parse_args()
    for name in options.database:
        _tell("database", name, make_database(name))
    if options.studies:
        require_extra("sweep")
        from superworkflow.sweeps.storage import StudyStorage

        StudyStorage(options.studies)
    if options.bucket:
        _tell("bucket", options.bucket, make_bucket(options.bucket))


def _tell(kind: str, name: str, made: bool) -> None:
    sys.stdout.write(f"{kind} {name}: {'made' if made else 'there already'}\n")


if __name__ == "__main__":
    main()
