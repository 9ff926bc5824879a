"""URLs of stores: `s3://bucket/prefix?endpoint=http://127.0.0.1:9000&region=eu-west-1`.

A URL says where a store is and how it is reached, never who asks: credentials come from the
surroundings of each process (`store/client/credentials.py`). One in a URL is refused, and no
message repeats a query, which may contain one.

The canonical form of a URL is the store's location: options are sorted, and those that have
their default value are left out. The path is taken as it is, without percent-decoding.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from urllib.parse import parse_qsl, quote, urlsplit

from headrace.errors import InvalidPipeline
from headrace.store.store import checked_name

_CONNECTION = {"allow_http": "false", "ca_file": "", "insecure": "false", "timeout": "15s"}

OPTIONS: dict[str, dict[str, str]] = {
    "s3": {"endpoint": "", "region": "", "path_style": "true", "profile": "", **_CONNECTION},
    "gs": {**_CONNECTION},
    "az": {"account": "", "endpoint": "", **_CONNECTION},
    "hdfs": {"replication": "", "timeout": "30s"},
}
"""Scheme -> options and their default values."""

_TRUTHS = ("allow_http", "insecure", "path_style")

_OTHER_SCHEMES = {
    "s3a": "s3", "s3n": "s3", "gcs": "gs", "azure": "az", "abfs": "az", "abfss": "az",
    "wasb": "az", "wasbs": "az", "adl": "az",
}  # fmt: skip

CREDENTIALS_BELONG = {
    "s3": "the environment (AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY), a profile of "
    "~/.aws/credentials, or the role of the machine",
    "gs": "the file that GOOGLE_APPLICATION_CREDENTIALS names, or the service account of the "
    "machine",
    "az": "the environment (AZURE_STORAGE_ACCOUNT_KEY, or AZURE_CLIENT_ID, AZURE_TENANT_ID and "
    "AZURE_CLIENT_SECRET), or the identity of the machine",
    "hdfs": "the environment (HADOOP_USER_NAME, or a Kerberos ticket of kinit)",
}
"""Scheme -> where the driver and the workers look for credentials."""

_SECRET = re.compile(r"key|secret|token|password|passwd|credential|signature|^sig$|^sas|^user$")
_PLACE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_HOST = re.compile(r"([A-Za-z0-9._-]+|\[[0-9a-fA-F:.]+\])(:\d{1,5})?")
_DURATION = re.compile(r"(\d+)(ms|s|m)")


@dataclass(frozen=True)
class StoreUrl:
    """A store's URL in parts."""

    scheme: str
    place: str
    """The bucket, the container, or the name node with its port."""
    prefix: str
    options: tuple[tuple[str, str], ...] = ()
    """Options that differ from their default, sorted."""

    @property
    def location(self) -> str:
        """The canonical URL, with its options."""
        query = "&".join(f"{name}={quote(value, safe=':/,.[]')}" for name, value in self.options)
        return f"{self.where()}?{query}" if query else self.where()

    def where(self, name: str = "") -> str:
        """The URL of a name, without options: for people."""
        parts = "/".join(part for part in (self.prefix, name) if part)
        return f"{self.scheme}://{self.place}/{parts}" if parts else f"{self.scheme}://{self.place}"

    def below(self, prefix: str) -> StoreUrl:
        """The URL of a part of the store."""
        if "?" in checked_name(prefix):
            raise ValueError(f"{prefix!r} cannot be a part of a URL, because it contains a '?'")
        return replace(self, prefix=f"{self.prefix}/{prefix}" if self.prefix else prefix)

    def option(self, name: str) -> str:
        """The value of an option, or its default."""
        return dict(self.options).get(name, OPTIONS[self.scheme][name])

    def having(self, more: Mapping[str, str]) -> StoreUrl:
        """The URL with some options filled in, if they have a value and none was given."""
        known = dict(self.options)
        for name, value in more.items():
            if value:
                known.setdefault(name, value)
        return _checked(replace(self, options=_canonical(self.scheme, known.items())))

    @property
    def timeout_s(self) -> float:
        """How long to wait for an answer."""
        found = _DURATION.fullmatch(self.option("timeout"))
        if found is None:
            raise InvalidPipeline(f"{self.where()}: timeout= is a time such as 15s")
        return int(found[1]) * {"ms": 0.001, "s": 1.0, "m": 60.0}[found[2]]


def is_url(text: str) -> bool:
    """Whether a text is a URL of any kind, and not a path."""
    scheme, colon, _ = text.partition("://")
    return bool(colon) and scheme.isalnum() and not scheme.isdigit()


def parse_url(text: str) -> StoreUrl:
    """The parts of a URL; InvalidPipeline if no store can have it."""
    scheme, _, rest = text.partition("://")
    scheme = scheme.lower()
    rest, _, query = rest.partition("?")
    place, _, path = rest.partition("/")
    if scheme not in OPTIONS:
        raise _unknown_scheme(scheme, rest)
    if "@" in place:
        if scheme == "az":
            raise InvalidPipeline(
                "an Azure container is named as az://container/prefix?account=NAME; "
                f"credentials belong into {CREDENTIALS_BELONG['az']}"
            )
        raise _no_credentials(scheme, f"{scheme}://…@{place.rpartition('@')[2]}")
    if scheme == "hdfs":
        if not _HOST.fullmatch(place):
            raise InvalidPipeline(
                f"hdfs://{place}/{path} names no name node: write hdfs://host:port/path, or "
                "hdfs://nameservice/path with HADOOP_CONF_DIR set"
            )
    elif not place:
        raise InvalidPipeline(f"{text.partition('?')[0]} names no bucket: {_form(scheme)}")
    elif not _PLACE.fullmatch(place):
        raise InvalidPipeline(
            f"{place!r} cannot be the name of a bucket: {_form(scheme)} (the endpoint of a server "
            "is an option: ?endpoint=http://host:port)"
        )
    prefix = path.strip("/")
    if prefix:
        try:
            checked_name(prefix)
        except ValueError as error:
            raise InvalidPipeline(f"{scheme}://{place}: {error}") from None
    given = parse_qsl(query, keep_blank_values=True)
    if query and not all("=" in part for part in query.split("&")):
        raise InvalidPipeline(f"{scheme}://{place}: options are written ?name=value&name=value")
    names = [name for name, _ in given]
    for name in names:
        if name not in OPTIONS[scheme]:
            if _SECRET.search(name.lower()):
                raise _no_credentials(scheme, f"the option {name}= of {scheme}://{place}")
            raise InvalidPipeline(
                f"{scheme}:// has no option {name!r}; its options are "
                f"{', '.join(sorted(OPTIONS[scheme]))}"
            )
        if names.count(name) > 1:
            raise InvalidPipeline(f"{scheme}://{place}: the option {name!r} is given twice")
    return _checked(StoreUrl(scheme, place, prefix, _canonical(scheme, given)))


def _canonical(scheme: str, given: Iterable[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
    found = {}
    for name, value in given:
        text = value.lower() if name in _TRUTHS else value.rstrip("/")
        if text != OPTIONS[scheme][name]:
            found[name] = text
    return tuple(sorted(found.items()))


def _checked(url: StoreUrl) -> StoreUrl:
    """The URL, if the values of its options can be used."""
    for name, value in url.options:
        if name in _TRUTHS and value not in ("true", "false"):
            raise InvalidPipeline(f"{url.where()}: the option {name} is true or false")
        if name == "replication" and not (value.isdigit() and int(value) > 0):
            raise InvalidPipeline(f"{url.where()}: the option replication is a number from 1 on")
    if url.timeout_s <= 0:
        raise InvalidPipeline(f"{url.where()}: timeout= is longer than nothing")
    if "endpoint" in OPTIONS[url.scheme] and (endpoint := url.option("endpoint")):
        parts = urlsplit(endpoint)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise InvalidPipeline(
                f"{url.where()}: endpoint= is a URL such as https://host:port, with http or https"
            )
        if parts.username or parts.password or parts.query:
            raise _no_credentials(url.scheme, f"the endpoint of {url.where()}")
        if parts.scheme == "http" and url.option("allow_http") != "true":
            raise InvalidPipeline(
                f"{url.where()}: its endpoint is plain http, so everybody on the way can read and "
                "change what is sent: use https, or add the option allow_http=true"
            )
    return url


def _form(scheme: str) -> str:
    more = "?account=NAME" if scheme == "az" else ""
    return f"write {scheme}://{'container' if scheme == 'az' else 'bucket'}/prefix{more}"


def _no_credentials(scheme: str, what: str) -> InvalidPipeline:
    return InvalidPipeline(
        f"{what} contains a credential, and a URL is written to logs and sent to workers: remove "
        f"it there. Credentials belong into {CREDENTIALS_BELONG[scheme]}"
    )


def _unknown_scheme(scheme: str, rest: str) -> InvalidPipeline:
    meant = _OTHER_SCHEMES.get(scheme)
    hint = f": write {meant}://" if meant else ""
    known = ", ".join(f"{name}://" for name in OPTIONS)
    return InvalidPipeline(
        f"{scheme}:// is not a kind of store{hint}. There are {known}, and paths of a filesystem "
        "that the driver and all executors see"
    )
