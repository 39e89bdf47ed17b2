#!/bin/bash
# As the entrypoint of postgres:15: makes the database of user postgres with POSTGRES_PASSWORD, and serves.
set -e
if [ "$1" != postgres ]; then exec "$@"; fi
as="setpriv --reuid=postgres --regid=postgres --clear-groups --"
chown postgres "$PGDATA"
if [ ! -s "$PGDATA/PG_VERSION" ]; then
    install -m 600 -o postgres /dev/null /run/password
    printf '%s\n' "$POSTGRES_PASSWORD" > /run/password
    $as initdb --username postgres --pwfile /run/password --auth-local trust --auth-host trust --locale C.UTF-8 > /dev/null
    rm /run/password
    echo "host all all all scram-sha-256" >> "$PGDATA/pg_hba.conf"
fi
exec $as "$@" -c listen_addresses='*' -c unix_socket_directories=/tmp
