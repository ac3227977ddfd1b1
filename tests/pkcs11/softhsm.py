"""A token in software, with a folder of its own."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

LIBRARIES = Path("/usr/lib/softhsm/libsofthsm2.so"), *Path("/usr/lib").glob("*/softhsm/libsofthsm2.so")
PIN = "2468"


class Token:
    """A token with the label `factory`."""

    def __init__(self, folder: Path) -> None:
        (library,) = [each for each in LIBRARIES if each.exists()][:1]
        self.library = library
        self.folder = folder
        (folder / "objects").mkdir(parents=True)
        self.settings = folder / "softhsm2.conf"
        self.settings.write_text(f"directories.tokendir = {folder / 'objects'}\n")
        self.pin = folder / "pin"
        self.write_pin(PIN)
        self.run("--init-token", "--free", "--label", "factory", "--pin", PIN, "--so-pin", "1357")

    def write_pin(self, pin: str, mode: int = 0o600) -> None:
        self.pin.write_text(pin + "\n")
        self.pin.chmod(mode)

    def run(self, *arguments: str | Path) -> None:
        """`softhsm2-util` with this token."""
        subprocess.run(
            ["softhsm2-util", *map(str, arguments)],
            check=True,
            capture_output=True,
            env=os.environ | {"SOFTHSM2_CONF": str(self.settings)},
        )

    def key(self, label: str, token: str = "factory") -> str:
        """The name of a key in it (RFC 7512)."""
        return f"pkcs11:token={token};object={label}?module-path={self.library}&pin-source={self.pin}"

    def keep_p256(self, label: str) -> None:
        """Puts a key of another algorithm into it."""
        path = self.folder / "p256.pem"
        make = ["openssl", "genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256", "-out", path]
        subprocess.run(make, check=True, capture_output=True)
        self.run("--import", path, "--token", "factory", "--label", label, "--id", "01", "--pin", PIN)
