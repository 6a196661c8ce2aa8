"""Keys and digests of messages, for programs that use them. horo's own keys never pass through here."""

import hashlib
import hmac
import secrets

DIGEST_LENGTH = 32  # bytes
HOROVOD_SECRET_KEY = "_HOROVOD_SECRET_KEY"


def make_secret_key():
    return secrets.token_bytes(DIGEST_LENGTH)


def compute_digest(key, obj):
    """The HMAC of bytes."""
    return hmac.new(key, obj, hashlib.sha256).digest()


def check_digest(key, obj, digest):
    return hmac.compare_digest(digest, compute_digest(key, obj))
