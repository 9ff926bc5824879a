"""The usual chain of credentials for S3: environment, profile, web identity, container, instance.

Every process walks the chain by itself, workers too. Credentials stay inside the client: they are
in no location, pickle, message or repr. Azure and Google Cloud have chains of their own, which
obstore walks; so are web identity, containers and instances of AWS. What obstore does not read is
the profile files, so this module does:

1. keys in the environment (`AWS_ACCESS_KEY_ID`), unless the URL names a profile;
2. a profile of `~/.aws/credentials` and `~/.aws/config`: the one that the URL or `AWS_PROFILE`
   names, otherwise `default`. Static keys are read here; a profile that must ask a service (a
   role, SSO, a process) needs boto3;
3. what obstore finds: web identity, ECS, instance metadata.
"""

from __future__ import annotations

import configparser
import importlib
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from headrace.errors import InvalidPipeline
from headrace.store.url import StoreUrl

_ASKS_A_SERVICE = (
    "sso_session", "sso_start_url", "role_arn", "credential_process", "source_profile",
    "credential_source", "web_identity_token_file", "login_session",
)  # fmt: skip


@dataclass(frozen=True)
class AwsSettings:
    """What the chain has found. Its repr does not show the keys."""

    region: str = ""
    endpoint: str = ""
    keys: dict[str, str] = field(default_factory=dict, repr=False)
    """Static keys, as obstore calls them; empty if obstore finds credentials itself."""
    provider: Callable[[], Any] | None = field(default=None, repr=False)
    """Gives keys that expire."""


def aws_settings(url: StoreUrl, environment: Mapping[str, str] | None = None) -> AwsSettings:
    """Region, endpoint and keys for a URL, by the chain; nothing is sent anywhere."""
    env = os.environ if environment is None else environment
    named = url.option("profile") or env.get("AWS_PROFILE", "")
    profile = _profile(named or "default", env, required=bool(named))
    region = env.get("AWS_REGION") or env.get("AWS_DEFAULT_REGION") or profile.get("region", "")
    endpoint = (
        env.get("AWS_ENDPOINT_URL_S3")
        or env.get("AWS_ENDPOINT_URL")
        or env.get("AWS_ENDPOINT")
        or profile.get("endpoint_url", "")
    )
    found = AwsSettings(region, endpoint)
    if not url.option("profile") and env.get("AWS_ACCESS_KEY_ID"):
        return found
    if not named and env.get("AWS_WEB_IDENTITY_TOKEN_FILE"):
        return found
    if "aws_access_key_id" in profile and "role_arn" not in profile:
        return AwsSettings(region, endpoint, _static(named or "default", profile))
    if asks := [name for name in _ASKS_A_SERVICE if name in profile]:
        return AwsSettings(region, endpoint, {}, _by_boto3(named or "default", asks[0]))
    if named:
        raise InvalidPipeline(
            f"the profile {named!r} of ~/.aws has neither keys nor a role: give it "
            "aws_access_key_id and aws_secret_access_key, or name another one"
        )
    return found


def _static(name: str, profile: Mapping[str, str]) -> dict[str, str]:
    if "aws_secret_access_key" not in profile:
        raise InvalidPipeline(f"the profile {name!r} of ~/.aws has no aws_secret_access_key")
    keys = {
        "access_key_id": profile["aws_access_key_id"],
        "secret_access_key": profile["aws_secret_access_key"],
    }
    if token := profile.get("aws_session_token"):
        keys["session_token"] = token
    return keys


def _profile(name: str, env: Mapping[str, str], required: bool) -> dict[str, str]:
    """The settings of a profile, out of both files; those of the credentials file win."""
    home = Path(env.get("HOME") or Path.home()) / ".aws"
    config = Path(env.get("AWS_CONFIG_FILE") or home / "config").expanduser()
    secret = Path(env.get("AWS_SHARED_CREDENTIALS_FILE") or home / "credentials").expanduser()
    section = name if name == "default" else f"profile {name}"
    found = [_section(config, section), _section(secret, name)]
    if required and found == [None, None]:
        raise InvalidPipeline(
            f"there is no profile {name!r} in {secret} or {config}: correct AWS_PROFILE or the "
            "option profile="
        )
    return {**(found[0] or {}), **(found[1] or {})}


def _section(path: Path, name: str) -> dict[str, str] | None:
    parser = configparser.RawConfigParser(default_section="", strict=False)
    try:
        parser.read_string(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return None
    except (configparser.Error, UnicodeDecodeError):
        # The text of the error would show a line of the file.
        raise InvalidPipeline(f"{path} cannot be read: it is not written as AWS does") from None
    return dict(parser[name]) if parser.has_section(name) else None


def _by_boto3(name: str, why: str) -> Callable[[], Any]:
    try:
        session = importlib.import_module("boto3").Session(profile_name=name)
        provider = importlib.import_module("obstore.auth.boto3").Boto3CredentialProvider
    except ImportError:
        raise InvalidPipeline(
            f"the profile {name!r} of ~/.aws has {why}, which needs boto3: pip install boto3, here "
            "and for the workers, or use a profile with keys"
        ) from None
    try:
        found: Callable[[], Any] = provider(session)
    except ValueError:
        raise InvalidPipeline(f"boto3 finds no credentials in the profile {name!r}") from None
    return found
