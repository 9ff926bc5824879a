"""Requests that create a bucket or a container, signed by hand: the client under test cannot."""

from __future__ import annotations

import base64
import hashlib
import hmac
import urllib.error
import urllib.request
from datetime import UTC, datetime
from urllib.parse import urlsplit

from headrace.errors import HeadraceError

OK = (200, 201, 409)


def put_bucket(endpoint: str, bucket: str, key: str, secret: str) -> None:
    now = datetime.now(UTC)
    stamp, day = now.strftime("%Y%m%dT%H%M%SZ"), now.strftime("%Y%m%d")
    empty = hashlib.sha256(b"").hexdigest()
    headers = {
        "host": urlsplit(endpoint).netloc,
        "x-amz-content-sha256": empty,
        "x-amz-date": stamp,
    }
    names = ";".join(sorted(headers))
    lines = "".join(f"{name}:{headers[name]}\n" for name in sorted(headers))
    canonical = f"PUT\n/{bucket}\n\n{lines}\n{names}\n{empty}"
    scope = f"{day}/us-east-1/s3/aws4_request"
    digest = hashlib.sha256(canonical.encode()).hexdigest()
    signing = f"AWS4{secret}".encode()
    for part in (day, "us-east-1", "s3", "aws4_request"):
        signing = hmac.new(signing, part.encode(), hashlib.sha256).digest()
    text = f"AWS4-HMAC-SHA256\n{stamp}\n{scope}\n{digest}"
    signature = hmac.new(signing, text.encode(), hashlib.sha256).hexdigest()
    headers["Authorization"] = (
        f"AWS4-HMAC-SHA256 Credential={key}/{scope}, SignedHeaders={names}, Signature={signature}"
    )
    _put(f"{endpoint}/{bucket}", headers)


def put_container(endpoint: str, account: str, container: str, key: str) -> None:
    stamp = datetime.now(UTC).strftime("%a, %d %b %Y %H:%M:%S GMT")
    version = "2021-08-06"
    text = (
        "PUT\n\n\n\n\n\n\n\n\n\n\n\n"
        f"x-ms-date:{stamp}\nx-ms-version:{version}\n"
        f"/{account}/{account}/{container}\nrestype:container"
    )
    signature = hmac.new(base64.b64decode(key), text.encode(), hashlib.sha256).digest()
    headers = {
        "x-ms-date": stamp,
        "x-ms-version": version,
        "Authorization": f"SharedKey {account}:{base64.b64encode(signature).decode()}",
    }
    _put(f"{endpoint}/{container}?restype=container", headers)


def _put(url: str, headers: dict[str, str]) -> None:
    request = urllib.request.Request(url, data=b"", method="PUT", headers=headers)
    request.add_unredirected_header("Content-type", "")
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            status, said = answer.status, b""
    except urllib.error.HTTPError as error:
        status, said = error.code, error.read()[:500]
    if status not in OK:
        raise HeadraceError(f"PUT {url}: {status} {said!r}")
