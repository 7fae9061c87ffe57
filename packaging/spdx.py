"""The software bill of materials, SPDX 2.3 in JSON, from what dpkg knows of the root that the image is made of."""

import datetime
import hashlib
import json
import urllib.parse

# Libraries of headers: they are in the program, and no linker knows of them.
HEADERS = ("libboost1.81-dev", "libcli11-dev", "nlohmann-json3-dev")
HOME = "https://github.com/lunkeeper/lunkeeper"


def installed(package, root):
    """(version, source package, its version, architecture) of a package that is installed there."""
    fields = ("Version", "source:Package", "source:Version", "Architecture")
    form = "\t".join("${" + field + "}" for field in fields)
    return root.dpkg("dpkg-query", "--show", "--showformat", form + "\n", package).split("\n")[0].split("\t")


def identifier(package):
    """SPDX takes letters, digits, dots and dashes."""
    return "SPDXRef-" + "".join(each if each.isalnum() or each in ".-" else "-" for each in package)


def describe(package, root):
    version, source, source_version, architecture = installed(package, root)
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


def document(version, epoch, root, linked, contained):
    """Of the image made of that root. `linked`: packages of the program's libraries; `contained`: of all its files."""
    kinds = {package: "CONTAINS" for package in contained}
    kinds |= {package: "DYNAMIC_LINK" for package in linked}
    kinds |= {package: "STATIC_LINK" for package in HEADERS}
    packages = [lunkeeper(version), *(describe(package, root) for package in sorted(kinds))]
    relations = [("SPDXRef-DOCUMENT", "DESCRIBES", "SPDXRef-lunkeeper")]
    relations += [("SPDXRef-lunkeeper", kinds[package], identifier(package)) for package in sorted(kinds)]
    content = hashlib.sha256(json.dumps(packages).encode()).hexdigest()[:32]
    made = datetime.datetime.fromtimestamp(epoch, datetime.timezone.utc)
    return json.dumps(
        {
            "spdxVersion": "SPDX-2.3",
            "dataLicense": "CC0-1.0",
            "SPDXID": "SPDXRef-DOCUMENT",
            "name": f"lunkeeper-{version}-{root.architecture}",
            "documentNamespace": f"{HOME}/spdx/lunkeeper-{version}-{root.architecture}-{content}",
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
