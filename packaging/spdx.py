"""The software bill of materials, SPDX 2.3 in JSON, from what dpkg knows of the machine that the release is made on."""

import datetime
import hashlib
import json
import subprocess
import urllib.parse

# Libraries of headers: they are in the program, and no linker knows of them.
HEADERS = ("libboost1.81-dev", "libcli11-dev", "nlohmann-json3-dev")
HOME = "https://github.com/lunkeeper/lunkeeper"


def installed(package):
    """(version, source package, its version, architecture) of an installed package."""
    fields = ("Version", "source:Package", "source:Version", "Architecture")
    form = "\t".join("${" + field + "}" for field in fields)
    told = subprocess.run(
        ["dpkg-query", "--show", "--showformat", form + "\n", package],
        check=True, capture_output=True, text=True,
    ).stdout
    return told.split("\n")[0].split("\t")


def identifier(package):
    """SPDX takes letters, digits, dots and dashes."""
    return "SPDXRef-" + "".join(each if each.isalnum() or each in ".-" else "-" for each in package)


def describe(package):
    version, source, source_version, architecture = installed(package)
    place = f"{urllib.parse.quote(package)}@{urllib.parse.quote(version)}"
    return {
        "name": package,
        "SPDXID": identifier(package),
        "versionInfo": version,
        "supplier": "Organization: Debian",
        "downloadLocation": "NOASSERTION",
        "filesAnalyzed": False,
        "sourceInfo": f"built from the Debian source package {source} {source_version}",
        "licenseConcluded": "NOASSERTION",
        "licenseDeclared": "NOASSERTION",  # /usr/share/doc/PACKAGE/copyright in the image has it
        "copyrightText": "NOASSERTION",
        "externalRefs": [
            {
                "referenceCategory": "PACKAGE-MANAGER",
                "referenceType": "purl",
                "referenceLocator": f"pkg:deb/debian/{place}?arch={architecture}&distro=debian-12",
            }
        ],
    }


def lunkeeper(version):
    return {
        "name": "lunkeeper",
        "SPDXID": "SPDXRef-lunkeeper",
        "versionInfo": version,
        "supplier": "Organization: Lunkeeper's authors",
        "downloadLocation": HOME,
        "filesAnalyzed": False,
        "licenseConcluded": "Apache-2.0",
        "licenseDeclared": "Apache-2.0",
        "copyrightText": "NOASSERTION",
        "primaryPackagePurpose": "APPLICATION",
    }


def document(version, epoch, linked, contained):
    """`linked`: packages of the program's libraries; `contained`: of all files in the image."""
    kinds = {package: "CONTAINS" for package in contained}
    kinds |= {package: "DYNAMIC_LINK" for package in linked}
    kinds |= {package: "STATIC_LINK" for package in HEADERS}
    packages = [lunkeeper(version), *(describe(package) for package in sorted(kinds))]
    relations = [("SPDXRef-DOCUMENT", "DESCRIBES", "SPDXRef-lunkeeper")]
    relations += [("SPDXRef-lunkeeper", kinds[package], identifier(package)) for package in sorted(kinds)]
    content = hashlib.sha256(json.dumps(packages).encode()).hexdigest()[:32]
    made = datetime.datetime.fromtimestamp(epoch, datetime.timezone.utc)
    return json.dumps(
        {
            "spdxVersion": "SPDX-2.3",
            "dataLicense": "CC0-1.0",
            "SPDXID": "SPDXRef-DOCUMENT",
            "name": f"lunkeeper-{version}",
            "documentNamespace": f"{HOME}/spdx/lunkeeper-{version}-{content}",
            "creationInfo": {
                "created": made.strftime("%Y-%m-%dT%H:%M:%SZ"),
                "creators": ["Organization: Lunkeeper's authors", f"Tool: lunkeeper-release-{version}"],
            },
            "packages": packages,
            "relationships": [
                {"spdxElementId": one, "relationshipType": kind, "relatedSpdxElement": other}
                for one, kind, other in relations
            ],
        },
        indent=1,
    ) + "\n"
