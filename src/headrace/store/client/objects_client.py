"""Builds clients of obstore out of a URL's options and of what the chain of credentials found.

The package is imported when the first store is opened: it is an extra. A client that was built has
sent nothing. It repeats no request by itself (`store/objects.py` says why).
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from headrace.errors import InvalidPipeline, StoreError
from headrace.store.client.credentials import AwsSettings
from headrace.store.client.refusals import cleaned
from headrace.store.url import StoreUrl

CONNECT_S = 5.0
WHOLE_S = 1800.0
"""How long a request may take at most, with all its bytes; `timeout=` bounds each wait for some."""


def obstore_package(scheme: str) -> Any:
    """The module obstore; InvalidPipeline if it is not installed."""
    try:
        return importlib.import_module("obstore")
    except ImportError:
        raise InvalidPipeline(
            f"{scheme}:// needs the package obstore, here and for the workers: "
            "pip install 'headrace[objects]'"
        ) from None


def new_client(url: StoreUrl, aws: AwsSettings) -> Any:
    """A client for the whole bucket of a URL."""
    stores = importlib.import_module("obstore.store")
    errors = importlib.import_module("obstore.exceptions")
    how: dict[str, Any] = {
        "client_options": _client_options(url),
        "retry_config": {"max_retries": 0, "retry_timeout": timedelta(seconds=1)},
    }
    try:
        if url.scheme == "s3":
            if aws.provider is not None or aws.keys:
                how["credential_provider"] = aws.provider or _static(aws.keys)
            return stores.S3Store(url.place, config=_s3_config(url), **how)
        if url.scheme == "gs":
            return stores.GCSStore(url.place, **how)
        named = {"account_name": url.option("account"), "endpoint": url.option("endpoint")}
        config = {name: value for name, value in named.items() if value}
        return stores.AzureStore(url.place, config=config, **how)
    except errors.BaseError as error:
        raise StoreError(f"cannot open {url.where()}: {cleaned(str(error))[:200]}") from None


def _static(keys: dict[str, str]) -> Callable[[], dict[str, Any]]:
    """Gives keys that do not expire; as settings they would mix with those of the environment."""
    found = {**keys, "token": keys.get("session_token"), "expires_at": None}
    found.pop("session_token", None)
    return lambda: found


def _s3_config(url: StoreUrl) -> dict[str, Any]:
    config: dict[str, Any] = {}
    if region := url.option("region"):
        config["region"] = region
    virtual = url.option("path_style") == "false"
    config["virtual_hosted_style_request"] = virtual
    if endpoint := url.option("endpoint"):
        if virtual:
            parts = urlsplit(endpoint)
            endpoint = parts._replace(netloc=f"{url.place}.{parts.netloc}").geturl()
        config["endpoint"] = endpoint
    return config


def _client_options(url: StoreUrl) -> dict[str, Any]:
    found: dict[str, Any] = {
        "connect_timeout": timedelta(seconds=min(CONNECT_S, url.timeout_s)),
        "read_timeout": timedelta(seconds=url.timeout_s),
        "timeout": timedelta(seconds=WHOLE_S),
        "user_agent": "headrace",
    }
    if url.option("allow_http") == "true":
        found["allow_http"] = True
    if url.option("insecure") == "true":
        found["allow_invalid_certificates"] = True
    if path := url.option("ca_file"):
        try:
            found["root_certificate"] = Path(path).expanduser().read_bytes()
        except OSError as error:
            raise StoreError(
                f"cannot open {url.where()}: the file {path}, which ca_file= names, cannot be "
                f"read: {error.strerror}"
            ) from None
    return found
