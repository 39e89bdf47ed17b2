#!/bin/bash
# As `minio server FOLDER`: an S3 server on port 9000 for MINIO_ROOT_USER and MINIO_ROOT_PASSWORD.
set -e
folder=$2
python3 - > /run/s3.json <<'END'
import json, os
keys = {"accessKey": os.environ["MINIO_ROOT_USER"], "secretKey": os.environ["MINIO_ROOT_PASSWORD"]}
print(json.dumps({"identities": [{"name": "root", "credentials": [keys], "actions": ["Admin", "Read", "Write", "List", "Tagging"]}]}))
END
exec weed -logtostderr=true server -dir="$folder" -ip=127.0.0.1 -ip.bind=0.0.0.0 -s3 -s3.port=9000 -s3.config=/run/s3.json \
    -s3.port.iceberg=0 -s3.port.lance=0 -s3.iam=false -s3.autoCreateBucket=false -master.telemetry=false \
    -volume.preStopSeconds=0 -volume.max=64 -master.volumeSizeLimitMB=256
