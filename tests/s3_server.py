"""An S3 server on this machine for tests: moto's, where it is installed."""

import functools
import importlib.util
import urllib.request
import uuid
from typing import Any

import pytest

HAS_MOTO = importlib.util.find_spec("moto") is not None
needs_moto = pytest.mark.skipif(not HAS_MOTO, reason="needs moto's server (pip install 'moto[s3,server]')")
CREDENTIALS = {
    "AWS_ACCESS_KEY_ID": "test",
    "AWS_SECRET_ACCESS_KEY": "test-of-remotes",
    "AWS_EC2_METADATA_DISABLED": "true",
}


@functools.cache
def server() -> Any:
    """Start the server once per process; it ends with it."""
    from moto.server import ThreadedMotoServer  # type: ignore[import-not-found,unused-ignore]

    started = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    started.start()
    return started


def new_bucket() -> str:
    """Make a bucket, and return its address with the settings of this server."""
    host, port = server().get_host_and_port()
    name = f"bucket-{uuid.uuid4().hex[:12]}"
    made = urllib.request.Request(f"http://{host}:{port}/{name}", method="PUT")
    urllib.request.urlopen(made).close()
    return f"s3://{name}/team?endpoint_override={host}:{port}&scheme=http&region=us-east-1"
