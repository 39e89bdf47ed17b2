# Stands in for postgres:15 where no image registry can be reached: Debian's PostgreSQL 15.
ARG BASE=python:3.11-slim-bookworm
FROM ${BASE}
RUN apt-get update && apt-get install -y --no-install-recommends postgresql-15 && rm -rf /var/lib/apt/lists/* \
    && rm -rf /etc/postgresql /var/lib/postgresql && mkdir -p /var/lib/postgresql/data && chown -R postgres /var/lib/postgresql
ENV PATH=/usr/lib/postgresql/15/bin:$PATH PGDATA=/var/lib/postgresql/data
COPY postgres.sh /
STOPSIGNAL SIGINT
ENTRYPOINT ["/postgres.sh"]
CMD ["postgres"]
