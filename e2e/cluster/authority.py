"""A certificate authority of a test's own."""

from pathlib import Path

from harness.pool import run


class Authority:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.certificate = self.folder / "ca.crt"
        if not self.certificate.exists():
            self.folder.mkdir(parents=True, exist_ok=True)
            run(
                "openssl",
                "req",
                "-x509",
                "-newkey",
                "ec",
                "-pkeyopt",
                "ec_paramgen_curve:P-256",
                "-nodes",
                "-days",
                "3650",
                "-subj",
                f"/CN={self.folder.name}",
                "-keyout",
                self.folder / "ca.key",
                "-out",
                self.certificate,
            )

    def issue(self, name: str, *subjects: str, days: int = 365) -> tuple[Path, Path]:
        """(certificate, key) for `subjects` such as DNS:host or IP:address; both sides of TLS may use it."""
        key, request, certificate, extensions = (
            self.folder / f"{name}.{end}" for end in ("key", "csr", "crt", "ext")
        )
        run(
            "openssl",
            "req",
            "-newkey",
            "ec",
            "-pkeyopt",
            "ec_paramgen_curve:P-256",
            "-nodes",
            "-subj",
            f"/CN={name}",
            "-keyout",
            key,
            "-out",
            request,
        )
        extensions.write_text(
            f"subjectAltName={','.join(subjects)}\nextendedKeyUsage=serverAuth,clientAuth\n"
        )
        run(
            "openssl",
            "x509",
            "-req",
            "-in",
            request,
            "-CA",
            self.certificate,
            "-CAkey",
            self.folder / "ca.key",
            "-days",
            str(days),
            "-extfile",
            extensions,
            "-out",
            certificate,
        )
        return certificate, key
